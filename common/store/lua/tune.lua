-- tune: one decision of the tuner is told, and takes effect if it is a change and nobody has decided meanwhile.
-- KEYS[1] prefix
-- ARGV 1 version the decision was made from, 2 what is told of it (opaque), 3 how many such to keep, 4 the tuner's memory (opaque),
--   5 policy ('' for no change), 6 its new values (opaque), 7 call id (the same again gives the same answer)
-- returns the version there is now, or -1: the version has moved on, nothing is written
--@include base
--@include again
local known = kept(ARGV[7])
if known then return known end
local key = p .. 'parameters'
local version = redis.call('HGET', key, 'version') or '0'
if version ~= ARGV[1] then return -1 end
redis.call('XADD', p .. 'tuning', 'MAXLEN', '~', ARGV[3], '*', 'json', ARGV[2])
redis.call('HSET', key, 'version', version, 'memory', ARGV[4])
if ARGV[5] == '' then return keep(ARGV[7], tonumber(version)) end
redis.call('HSET', key, 'policy', ARGV[5], 'values', ARGV[6], 'since', now)
return keep(ARGV[7], redis.call('HINCRBY', key, 'version', 1))
