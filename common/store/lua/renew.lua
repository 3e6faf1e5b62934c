-- renew: keep leases alive; it is the instance's heartbeat too.
-- KEYS[1] prefix
-- ARGV 1 instance, 2 epoch ('' where none is kept), 3 lease ms, 4 load (opaque, shown to people), 5.. request, token, ...
-- returns {'ok', status of the instance, {request, ...} no longer held}, or {'epoch'} (a later incarnation has taken over, or it has left)
--@include base
-- A removal first, of nothing: after it a full Redis takes the writes too. Refused, all leases would run out and be losses.
redis.call('ZREM', p .. 'leases', '')
local key, status = p .. 'instance:' .. ARGV[1], ''
if ARGV[2] ~= '' then
  local epoch
  epoch, status = unpack(redis.call('HMGET', key, 'epoch', 'status'))
  if epoch ~= ARGV[2] or status == 'gone' then return {'epoch'} end
  redis.call('ZADD', p .. 'instances', now, ARGV[1])
  if status == 'lost' then status = 'ready' end
  redis.call('HSET', key, 'load', ARGV[4], 'status', status)
end
local gone = {}
for i = 5, #ARGV, 2 do
  local held = redis.call('HGET', p .. 'request:' .. ARGV[i], 'token') == ARGV[i + 1]
  if held and redis.call('ZSCORE', p .. 'leases', ARGV[i]) then
    redis.call('ZADD', p .. 'leases', now + ARGV[3], ARGV[i])
  else
    gone[#gone + 1] = ARGV[i]
  end
end
return {'ok', status, gone}
