-- give_back: a request has lost its instance, through no fault of its own. What came from the line waits there again, under its
-- key; any other is routed anew, as is what belongs to no running workflow, which nobody would take out of the line.
local function give_back(id, workflow, node)
  local lane, enqueued_at, offset_ms, load_ms =
    unpack(try('HMGET', p .. 'request:' .. id, 'lane', 'enqueued_at', 'offset_ms', 'load_ms') or {})
  detach(id)
  local whole = (lane or '') ~= '' and enqueued_at and offset_ms and load_ms
  if whole and try('HGET', p .. 'workflow:' .. workflow, 'status') == 'running' then
    redis.call('HSET', p .. 'request:' .. id, 'instance', 'line', 'load_ms', load_ms)
    enqueue(id, 'line', enqueued_at, offset_ms, load_ms)
  else
    tell(id, workflow, 'evacuated ' .. id .. ' ' .. node)
  end
end
