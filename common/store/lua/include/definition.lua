-- A definition that comes with a workflow goes when no workflow that ran it is kept any more, and at the latest when its time is over,
-- which begins anew with each; how many run it is in `uses`, from its first one on. Both are kept equally long, so one that is kept longer was kept by who does not count (a name that has moved on, an older version): then nobody
-- knows who runs it, and it stays for its time.
local function all_counted(key, uses)
  local counted_ms = redis.call('PTTL', uses) -- first: a clock that goes on in between makes the other less
  return counted_ms > 0 and redis.call('PTTL', key) <= counted_ms
end

-- define: a definition is there for a workflow that is accepted with it, to be kept for so long unless it has a name. Returns whether it
-- was not before.
local function define(digest, definition, keep_ms)
  return redis.call('SET', p .. 'definition:' .. digest, definition, 'PX', keep_ms, 'NX')
end

-- count_use: the workflow runs it. Apart, since a right that is missing here must cost no more than the count.
local function count_use(workflow, digest, is_new, keep_ms)
  local key = p .. 'definition:' .. digest
  local uses = key .. ':uses'
  if is_new then
    try('HSETNX', uses, 'running', 0)
    redis.call('PEXPIRE', uses, keep_ms)
  end
  if all_counted(key, uses) and try('HINCRBY', uses, 'running', 1) then
    redis.call('HSET', p .. 'workflow:' .. workflow, 'definition', digest)
  else
    redis.call('DEL', uses)
  end
  if redis.call('PTTL', key) > 0 then redis.call('PEXPIRE', key, keep_ms) end
  redis.call('PEXPIRE', uses, keep_ms)
end

-- uncount_use: a workflow has ended, and is kept for so long. After the last one a definition is kept as long as any that ran it.
local function uncount_use(workflow, keep_ms)
  local digest = redis.call('HGET', p .. 'workflow:' .. workflow, 'definition')
  local key = p .. 'definition:' .. (digest or '')
  local uses = key .. ':uses'
  if not digest or not all_counted(key, uses) then return end
  local until_at = math.max(now + keep_ms, tonumber(try('HGET', uses, 'until') or nil) or 0)
  try('HSET', uses, 'until', until_at)
  if (try('HINCRBY', uses, 'running', -1) or 1) > 0 or redis.call('PTTL', key) < 0 then return end
  redis.call('PEXPIRE', key, until_at - now)
  redis.call('PEXPIRE', uses, until_at - now)
end
