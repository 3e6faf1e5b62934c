-- fail: an attempt failed; the workflow is told and its coordinator decides on a retry. The record stays: its tokens go on growing.
-- KEYS[1] prefix
-- ARGV 1 request, 2 token, 3 reason (opaque)
-- returns 1; or 0 when the lease was lost, or this holder was answered before: nothing is written then; or -1 when its record does
--   not tell whose it is: it ends here, see reroute
--@include base
--@include post
--@include queue
--@include tenant
--@include reroute
local token, workflow, node = unpack(redis.call('HMGET', p .. 'request:' .. ARGV[1], 'token', 'workflow', 'node'))
if token ~= ARGV[2] or redis.call('ZREM', p .. 'leases', ARGV[1]) == 0 then return 0 end
if not (workflow and node) then reroute(ARGV[1]) return -1 end
local told = post(workflow, 'failed ' .. ARGV[1] .. ' ' .. node .. ' ' .. ARGV[3]) -- first, as in complete
detach(ARGV[1])
wake_line()
if not told then discharge(ARGV[1], '') end -- nobody asks for it again, see tell
return 1
