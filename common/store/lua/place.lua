-- place: requests leave the line for the queues of instances. Each does if it still waits there and the instance is ready, in the
-- incarnation that the planner saw. A plan counts only if no other was carried out since the planner looked.
-- KEYS[1] prefix
-- ARGV 1 plans carried out when the planner looked, 2 msgpack list {{request, instance, epoch, load_ms}, ...}
-- returns {1 or 0 for each}, or {} when another plan came first: nothing is written then
--@include base
--@include queue
--@include seat
if (redis.call('GET', p .. 'plans') or '0') ~= ARGV[1] then return {} end
redis.call('INCR', p .. 'plans')
local placed = {}
for i, placement in ipairs(cmsgpack.unpack(ARGV[2])) do
  local id, instance, epoch, load_ms = unpack(placement)
  local record = p .. 'request:' .. id
  local at, enqueued_at, offset_ms = unpack(try('HMGET', record, 'instance', 'enqueued_at', 'offset_ms') or {})
  local why_not, status = unseated(instance, epoch)
  placed[i] = 0
  if at == 'line' and whole(enqueued_at) and whole(offset_ms) and not why_not and status == 'ready' then
    detach(id)
    redis.call('HSET', record, 'instance', instance, 'load_ms', load_ms)
    enqueue(id, instance, enqueued_at, offset_ms, load_ms)
    placed[i] = 1
  end
end
return placed
