-- register: an instance joins, or joins again. Its epoch grows, so an earlier incarnation can no longer claim.
-- KEYS[1] prefix
-- ARGV 1 instance, 2 what it serves (opaque), 3 tokens of the longest prompt it takes, 4 profile (opaque)
-- returns {epoch, status}: 'ready', or 'joining' when it has a queue that was meant for another (it serves other models, or
--   has less room): nothing is pushed to it until that queue is evacuated and it is given the status 'ready'
--@include base
--@include queue
local key = p .. 'instance:' .. ARGV[1]
local serves, longest, before, epoch = unpack(redis.call('HMGET', key, 'serves', 'longest_prompt', 'status', 'epoch'))
local same = serves == ARGV[2] and tonumber(longest or math.huge) <= tonumber(ARGV[3]) and before ~= 'joining'
local status = 'ready'
if not same and redis.call('EXISTS', p .. 'queue:' .. ARGV[1]) == 1 then status = 'joining' end
redis.call('HSET', key, 'serves', ARGV[2], 'longest_prompt', ARGV[3], 'profile', ARGV[4], 'status', status)
redis.call('HDEL', key, 'load', 'cache', 'cache_version') -- an earlier incarnation's
redis.call('DEL', p .. 'claimed:' .. ARGV[1])
wake_line()
redis.call('PERSIST', key)
redis.call('ZADD', p .. 'instances', now, ARGV[1])
redis.call('HINCRBY', p .. 'backlog', ARGV[1], 0)
-- A time, not a count, as with tokens: one that outlives the cell's data, or that a failover has lost, is never met again.
epoch = math.max((whole(epoch) or 0) + 1, now)
redis.call('HSET', key, 'epoch', string.format('%.0f', epoch))
return {epoch, status}
