-- evacuate: everything queued on a lost or draining instance is routed anew, a bounded number at a time.
-- KEYS[1] prefix
-- ARGV 1 instance, 2 new status ('' to leave it), 3 requests at most
-- returns how many were moved
--@include base
--@include post
--@include queue
if ARGV[2] ~= '' and redis.call('EXISTS', p .. 'instance:' .. ARGV[1]) == 1 then
  redis.call('HSET', p .. 'instance:' .. ARGV[1], 'status', ARGV[2])
end
local ids = redis.call('ZRANGE', p .. 'queue:' .. ARGV[1], 0, ARGV[3] - 1)
for _, id in ipairs(ids) do
  local workflow, node = unpack(redis.call('HMGET', p .. 'request:' .. id, 'workflow', 'node'))
  redis.call('ZREM', p .. 'queue:' .. ARGV[1], id)
  if workflow then
    detach(id)
    post(workflow, 'evacuated ' .. id .. ' ' .. node)
  end
end
return #ids
