-- evacuate: everything queued on a lost, draining or stalled instance is given back, a bounded number at a time.
-- KEYS[1] prefix
-- ARGV 1 instance, 2 epoch ('' for whichever there is), 3 new status, 4 requests at most
-- returns how many were moved; -1 when a later incarnation has the instance: nothing is written then
--@include base
--@include post
--@include queue
--@include tenant
--@include reroute
--@include give_back
--@include seat
local key, why_not = p .. 'instance:' .. ARGV[1], unseated(ARGV[1], ARGV[2])
if why_not == 'epoch' then return -1 end
redis.call('ZREM', p .. 'leases', '') -- a removal first, of nothing: after it a full Redis takes the writes too
local status, was = unpack(redis.call('HMGET', key, 'status', 'was'))
if status ~= 'lost' then was = status end
-- One that is lost will be what it was once it is heard of, see renew. Draining is for good, until it registers anew.
if not why_not and status and ARGV[3] == 'lost' then
  redis.call('HSET', key, 'status', 'lost', 'was', was or 'ready')
elseif not why_not and status and was ~= 'draining' then
  redis.call('HSET', key, 'status', ARGV[3])
end
local ids, unread = redis.call('ZRANGE', p .. 'queue:' .. ARGV[1], 0, ARGV[4] - 1), false
for _, id in ipairs(ids) do
  local workflow, node = unpack(try('HMGET', p .. 'request:' .. id, 'workflow', 'node') or {})
  redis.call('ZREM', p .. 'queue:' .. ARGV[1], id)
  if workflow and node then give_back(id, workflow, node) else unread = not reroute(id) or unread end
end
if unread then recount(ARGV[1]) end
if ARGV[3] == 'ready' then wake_line() end
return #ids
