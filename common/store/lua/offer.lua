-- offer: a tool worker can be counted on from now on for a while.
-- KEYS[1] prefix
-- ARGV 1 its name and its tools, 2 ms
-- returns nothing
--@include base
-- A removal first, of nothing: after it a full Redis takes the write too. Refused, all tool workers would count as silent.
redis.call('ZREM', p .. 'offers', '')
redis.call('ZADD', p .. 'offers', now + ARGV[2], ARGV[1])
