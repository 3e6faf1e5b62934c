-- forfeit: an engine was lost under a request. Its lease ends now, though its worker lives, and is a loss like one that nobody renewed.
-- KEYS[1] prefix
-- ARGV 1 request, 2 token, 3 what became of the engine, in a word
-- returns 1, or 0 when the lease was lost
--@include base
-- A removal first, of nothing: after it a full Redis takes the writes too.
redis.call('ZREM', p .. 'leases', '')
local record = p .. 'request:' .. ARGV[1]
if redis.call('HGET', record, 'token') ~= ARGV[2] or not redis.call('ZSCORE', p .. 'leases', ARGV[1]) then return 0 end
redis.call('HSET', record, 'forfeited', ARGV[2], 'why', ARGV[3])
redis.call('ZADD', p .. 'leases', now, ARGV[1])
return 1
