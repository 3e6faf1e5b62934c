-- evacuate: everything queued on a lost or draining instance is routed anew, a bounded number at a time.
-- KEYS[1] prefix
-- ARGV 1 instance, 2 epoch ('' for whichever there is), 3 new status, 4 requests at most
-- returns how many were moved; -1 when a later incarnation has the instance: nothing is written then
--@include base
--@include post
--@include queue
local epoch = redis.call('HGET', p .. 'instance:' .. ARGV[1], 'epoch')
if ARGV[2] ~= '' and epoch ~= ARGV[2] then return -1 end
if epoch then redis.call('HSET', p .. 'instance:' .. ARGV[1], 'status', ARGV[3]) end
local ids = redis.call('ZRANGE', p .. 'queue:' .. ARGV[1], 0, ARGV[4] - 1)
for _, id in ipairs(ids) do
  local workflow, node = unpack(redis.call('HMGET', p .. 'request:' .. id, 'workflow', 'node'))
  redis.call('ZREM', p .. 'queue:' .. ARGV[1], id)
  if workflow then
    detach(id)
    post(workflow, 'evacuated ' .. id .. ' ' .. node)
  end
end
return #ids
