-- renew: keep leases alive; it is the instance's heartbeat too.
-- KEYS[1] prefix
-- ARGV 1 instance, 2 epoch ('' where none is kept), 3 lease ms, 4.. request, token, ...
-- returns {'ok', status of the instance, {request, ...} no longer held}, or {why not} (see unseated)
--@include base
--@include queue
--@include seat
-- A removal first, of nothing: after it a full Redis takes the writes too. Refused, all leases would run out and be losses.
redis.call('ZREM', p .. 'leases', '')
local why_not, status = unseated(ARGV[1], ARGV[2])
if why_not then return {why_not} end
if ARGV[2] ~= '' then
  redis.call('ZADD', p .. 'instances', now, ARGV[1])
  if status == 'lost' then
    status = redis.call('HGET', p .. 'instance:' .. ARGV[1], 'was') or 'ready'
    wake_line()
  end
  redis.call('HSET', p .. 'instance:' .. ARGV[1], 'status', status)
end
local gone = {}
for i = 4, #ARGV, 2 do
  local token, forfeited = unpack(try('HMGET', p .. 'request:' .. ARGV[i], 'token', 'forfeited') or {})
  local held = token == ARGV[i + 1] and forfeited ~= token
  if held and redis.call('ZSCORE', p .. 'leases', ARGV[i]) then
    redis.call('ZADD', p .. 'leases', now + ARGV[3], ARGV[i])
  else
    gone[#gone + 1] = ARGV[i]
  end
end
return {'ok', status, gone}
