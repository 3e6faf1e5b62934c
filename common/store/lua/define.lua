-- define: a name stands for this definition from now on. The one it stood for, if no name does any more, is kept for a while: for
-- those that run it, and those being accepted now.
-- KEYS[1] prefix
-- ARGV 1 name, 2 digest, 3 definition (opaque), 4 ms the one before is kept
-- returns 1 if the one before will be forgotten, else 0
--@include base
local names = p .. 'workflows'
local before = redis.call('HGET', names, ARGV[1])
redis.call('SET', p .. 'definition:' .. ARGV[2], ARGV[3])
redis.call('HSET', names, ARGV[1], ARGV[2])
if not before then return 0 end
for _, digest in ipairs(redis.call('HVALS', names)) do
  if digest == before then return 0 end
end
redis.call('DEL', p .. 'definition:' .. before .. ':uses') -- who runs it is not counted any more: it stays for its time
return redis.call('PEXPIRE', p .. 'definition:' .. before, ARGV[4])
