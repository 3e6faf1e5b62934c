-- is_ready: whether requests may be pushed to this queue. The tools and the line keep no registration.
local function is_ready(instance)
  return instance == 'tools' or instance == 'line' or redis.call('HGET', p .. 'instance:' .. instance, 'status') == 'ready'
end

-- queue_of: the name of the queue in which a request waits: its instance, or its lane where that is the line.
local function queue_of(id, instance)
  return instance == 'line' and try('HGET', p .. 'request:' .. id, 'lane') or instance
end

-- enqueue: a request into its instance's queue, its load onto the backlog, and the sleeping worker woken.
-- The score is `enqueued_at + offset_ms`: fixed while it waits, but where its deadline is amended (rescore): so the order is not
-- computed again.
local function enqueue(id, instance, enqueued_at, offset_ms, load_ms)
  local queue = queue_of(id, instance)
  redis.call('ZADD', p .. 'queue:' .. queue, enqueued_at + offset_ms, id)
  if queue ~= instance then redis.call('SADD', p .. 'lanes', queue) end
  redis.call('HINCRBY', p .. 'backlog', instance, load_ms)
  redis.call('ZADD', p .. 'wake:' .. instance, 0, 'wake')
end

-- wake_line: there is room on an instance again: a planner looks, if anything waits for that.
local function wake_line()
  if redis.call('EXISTS', p .. 'queue:line', p .. 'lanes') > 0 then redis.call('ZADD', p .. 'wake:line', 0, 'wake') end
end

-- unqueue: a request out of a queue. A lane that is empty is no lane any more.
local function unqueue(id, queue)
  local waited = redis.call('ZREM', p .. 'queue:' .. queue, id) == 1
  if waited and redis.call('EXISTS', p .. 'queue:' .. queue) == 0 then redis.call('SREM', p .. 'lanes', queue) end
end

-- recount: the backlog of an instance, from the records of all that waits or is claimed there: for when one of them is lost, and
-- nobody knows any more what it had added.
local function recount(instance)
  local lists, load_ms = {'leases', 'queue:' .. instance}, 0
  for _, lane in ipairs(instance == 'line' and redis.call('SMEMBERS', p .. 'lanes') or {}) do lists[#lists + 1] = 'queue:' .. lane end
  for _, list in ipairs(lists) do
    for _, id in ipairs(redis.call('ZRANGE', p .. list, 0, -1)) do
      local at, its = unpack(try('HMGET', p .. 'request:' .. id, 'instance', 'load_ms') or {})
      if at == instance then load_ms = load_ms + (whole(its) or 0) end
    end
  end
  redis.call('HSET', p .. 'backlog', instance, load_ms)
end

-- search: these requests off whichever instance they are claimed by, for when nobody knows any more.
local function search(ids)
  for _, name in ipairs(redis.call('HKEYS', p .. 'backlog')) do
    for _, id in ipairs(ids) do redis.call('SREM', p .. 'claimed:' .. name, id) end
    recount(name)
  end
end

-- detach: take a request off its instance (queue, backlog and, unless it is kept, lease); its record stays, so its tokens go on
-- growing.
-- Returns false where its record is lost: whoever knows where it was must take it from there. A lease of it runs out, see reap.
local function detach(id, keep_lease)
  local key = p .. 'request:' .. id
  local instance, load_ms = unpack(try('HMGET', key, 'instance', 'load_ms') or {})
  if not (instance or load_ms) then return false end
  if not keep_lease then redis.call('ZREM', p .. 'leases', id) end
  if not instance then
    if load_ms ~= '0' then search({id}) end -- one that is with its workflow has none
    return true
  end
  unqueue(id, queue_of(id, instance))
  redis.call('SREM', p .. 'claimed:' .. instance, id)
  redis.call('HINCRBY', p .. 'backlog', instance, 0 - (whole(load_ms) or 0)) -- not -0: 6.2 takes none
  redis.call('HDEL', key, 'instance')
  redis.call('HSET', key, 'load_ms', 0)
  if not whole(load_ms) then recount(instance) end
  return true
end
