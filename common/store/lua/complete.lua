-- complete: the first holder of the current token to finish wins; its output is kept and its workflow told.
-- KEYS[1] prefix
-- ARGV 1 request, 2 token, 3 output (opaque), 4 tokens it has cost its tenant ('' where the engine does not say)
-- returns 1; or 0 when the lease was lost, or this holder was answered before: nothing is written then; or -1 when its record does
--   not tell whose it is: it ends here, see reroute
--@include base
--@include post
--@include queue
--@include tenant
--@include reroute
local record = p .. 'request:' .. ARGV[1]
local token, workflow, node, instance = unpack(redis.call('HMGET', record, 'token', 'workflow', 'node', 'instance'))
if token ~= ARGV[2] or redis.call('ZREM', p .. 'leases', ARGV[1]) == 0 then return 0 end
if not (workflow and node) then reroute(ARGV[1]) return -1 end
-- What its workflow waits for comes first, what is counted last: a right that the user lacks costs no more than a count.
if post(workflow, 'completed ' .. ARGV[1] .. ' ' .. node .. ' ' .. token) then
  try('HSET', p .. 'workflow:' .. workflow .. ':outputs', node, ARGV[3]) -- of another type, it is found when the mail is read
end
detach(ARGV[1])
wake_line()
discharge(ARGV[1], ARGV[4])
if instance then redis.call('HINCRBY', p .. 'served', instance, 1) end
return 1
