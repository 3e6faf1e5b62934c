-- cancel: ask the coordinator of a running workflow to end it.
-- KEYS[1] prefix
-- ARGV 1 workflow id, 2 reason
-- returns 1, or 0 when no such workflow is running
--@include base
--@include post
if redis.call('HGET', p .. 'workflow:' .. ARGV[1], 'status') ~= 'running' then return 0 end
post(ARGV[1], 'cancel - - ' .. ARGV[2])
return 1
