-- give_back: a request has lost its instance, through no fault of its own. What came from the line waits there again, under its
-- key; any other is routed anew, as is what belongs to no running workflow, which nobody would take out of the line. Refused by a
-- missing right in between, it is with its workflow already, or its lease is still there and runs out.
local function give_back(id, workflow, node)
  local lane, enqueued_at, offset_ms, load_ms =
    unpack(try('HMGET', p .. 'request:' .. id, 'lane', 'enqueued_at', 'offset_ms', 'load_ms') or {})
  local complete = (lane or '') ~= '' and whole(enqueued_at) and whole(offset_ms) and whole(load_ms)
  if complete and try('HGET', p .. 'workflow:' .. workflow, 'status') == 'running' then
    detach(id, true)
    redis.call('HSET', p .. 'request:' .. id, 'instance', 'line', 'load_ms', load_ms)
    enqueue(id, 'line', enqueued_at, offset_ms, load_ms)
    redis.call('ZREM', p .. 'leases', id)
  else
    redis.call('ZREM', p .. 'leases', id)
    local told = post(workflow, 'evacuated ' .. id .. ' ' .. node)
    detach(id)
    if not told then discharge(id, '') end -- nobody asks for it again, see tell
  end
end
