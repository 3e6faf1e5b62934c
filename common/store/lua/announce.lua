-- announce: a coordinator is there for a while from now on, and sees who else is. Those whose time is over are forgotten.
-- KEYS[1] prefix
-- ARGV 1 its name and its policy, 2 ms
-- returns {name and policy, ...}
--@include base
redis.call('ZREMRANGEBYSCORE', p .. 'coordinators', '-inf', now)
redis.call('ZADD', p .. 'coordinators', now + ARGV[2], ARGV[1])
return redis.call('ZRANGE', p .. 'coordinators', 0, -1)
