-- publish: what a worker says of its engine. Calls for a planner, if there is a line whose requests may start now.
-- KEYS[1] prefix
-- ARGV 1 instance, 2 epoch, 3 load (opaque), 4 version of the prefix cache, 5 the cache (opaque; left out: as it was)
-- returns 1, or 0 when this incarnation has lost its seat: nothing is written then
--@include base
--@include queue
--@include seat
if unseated(ARGV[1], ARGV[2]) then return 0 end
local key = p .. 'instance:' .. ARGV[1]
redis.call('HSET', key, 'load', ARGV[3])
if ARGV[5] then redis.call('HSET', key, 'cache_version', ARGV[4], 'cache', ARGV[5]) end
wake_line()
return 1
