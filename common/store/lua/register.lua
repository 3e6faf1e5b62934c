-- register: an instance joins, or joins again. Its epoch grows, so an earlier incarnation can no longer claim.
-- KEYS[1] prefix
-- ARGV 1 instance, 2.. field, value, ... of its record (profile, models, labels ...: opaque)
-- returns its epoch
--@include base
local key = p .. 'instance:' .. ARGV[1]
local epoch = redis.call('HINCRBY', key, 'epoch', 1)
for i = 2, #ARGV, 2 do redis.call('HSET', key, ARGV[i], ARGV[i + 1]) end
redis.call('HSET', key, 'status', 'ready')
redis.call('PERSIST', key)
redis.call('ZADD', p .. 'instances', now, ARGV[1])
redis.call('HINCRBY', p .. 'backlog', ARGV[1], 0)
return epoch
