-- fail: an attempt failed; the workflow is told and its coordinator decides on a retry. The record stays: its token goes on counting.
-- KEYS[1] prefix
-- ARGV 1 request, 2 token, 3 reason (opaque)
-- returns 1, also when this holder asks again; or 0 when the lease was lost: nothing is written then
--@include base
--@include post
--@include queue
--@include tenant
--@include tell
--@include again
local call = 'fail ' .. ARGV[1] .. ' ' .. ARGV[2]
local token, workflow, node = unpack(redis.call('HMGET', p .. 'request:' .. ARGV[1], 'token', 'workflow', 'node'))
if token ~= ARGV[2] or redis.call('ZREM', p .. 'leases', ARGV[1]) == 0 then return kept(call) or 0 end
detach(ARGV[1])
wake_line()
tell(ARGV[1], workflow, 'failed ' .. ARGV[1] .. ' ' .. node .. ' ' .. ARGV[3])
return keep(call, 1)
