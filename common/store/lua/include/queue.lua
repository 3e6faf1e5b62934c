-- is_ready: whether requests may be pushed to this queue. The tools and the line keep no registration.
local function is_ready(instance)
  return instance == 'tools' or instance == 'line' or redis.call('HGET', p .. 'instance:' .. instance, 'status') == 'ready'
end

-- enqueue: a request into its instance's queue, its load onto the backlog, and the sleeping worker woken.
-- The score is `enqueued_at + offset_ms`: fixed while it waits, so the order never has to be computed again.
local function enqueue(id, instance, enqueued_at, offset_ms, load_ms)
  redis.call('ZADD', p .. 'queue:' .. instance, enqueued_at + offset_ms, id)
  redis.call('HINCRBY', p .. 'backlog', instance, load_ms)
  redis.call('ZADD', p .. 'wake:' .. instance, 0, 'wake')
end

-- wake_line: there is room on an instance again: a planner looks, if anything waits for that.
local function wake_line()
  if redis.call('EXISTS', p .. 'queue:line') == 1 then redis.call('ZADD', p .. 'wake:line', 0, 'wake') end
end

-- detach: take a request off its instance (queue, lease and backlog); its record stays, so its token goes on counting.
local function detach(id)
  local key = p .. 'request:' .. id
  local instance, load_ms = unpack(try('HMGET', key, 'instance', 'load_ms') or {})
  redis.call('ZREM', p .. 'leases', id)
  if not instance then return end
  redis.call('ZREM', p .. 'queue:' .. instance, id)
  redis.call('SREM', p .. 'claimed:' .. instance, id)
  redis.call('HINCRBY', p .. 'backlog', instance, 0 - (tonumber(load_ms or '') or 0)) -- not -0: 6.2 takes none
  redis.call('HDEL', key, 'instance')
  redis.call('HSET', key, 'load_ms', 0)
end
