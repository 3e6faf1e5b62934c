-- leave: an instance whose queue is empty is forgotten, unless a later incarnation has taken over.
-- KEYS[1] prefix
-- ARGV 1 instance, 2 epoch ('' for whichever there is), 3 ms its record is kept
-- returns 1, or 0 when a later incarnation has it, or nothing is known of it
--@include base
local key = p .. 'instance:' .. ARGV[1]
if ARGV[2] ~= '' and redis.call('HGET', key, 'epoch') ~= ARGV[2] then return 0 end
redis.call('ZREM', p .. 'instances', ARGV[1])
redis.call('HSET', key, 'status', 'gone')
redis.call('PEXPIRE', key, ARGV[3])
-- What an earlier incarnation still holds goes off the backlog when its leases end; forgotten now, it would go below 0.
if redis.call('HGET', p .. 'backlog', ARGV[1]) == '0' then redis.call('HDEL', p .. 'backlog', ARGV[1]) end
redis.call('DEL', p .. 'wake:' .. ARGV[1], p .. 'claimed:' .. ARGV[1])
return 1
