-- rescore: a request has another key, and its record other fields. If it waits it goes to another place in its queue at once; if it is
-- claimed it is left, and would come back under the new key. One that has ended has no record any more, and gets none.
local function rescore(id, offset_ms, fields)
  local record = p .. 'request:' .. id
  local enqueued_at, instance = unpack(try('HMGET', record, 'enqueued_at', 'instance') or {})
  if not whole(enqueued_at) then return end
  redis.call('HSET', record, 'offset_ms', offset_ms, unpack(fields))
  if instance then redis.call('ZADD', p .. 'queue:' .. queue_of(id, instance), 'XX', enqueued_at + offset_ms, id) end
end
