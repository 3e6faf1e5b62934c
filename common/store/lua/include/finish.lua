-- finish: a workflow has ended. Its result is kept; all of it gets a time to live. Whose it was is kept beside it, since what is
-- damaged may not tell.
local function finish(workflow, status, result, ttl_ms)
  local key = p .. 'workflow:' .. workflow
  redis.call('HSET', key, 'status', status)
  redis.call('SET', key .. ':result', result, 'PX', ttl_ms)
  redis.call('DEL', key .. ':mailbox', key .. ':outputs')
  redis.call('PEXPIRE', key, ttl_ms)
  redis.call('PEXPIRE', key .. ':events', ttl_ms)
  redis.call('ZREM', p .. 'live', workflow)
  redis.call('HINCRBY', p .. 'ended', status, 1)
  count_end()
  uncount(workflow)
  uncount_use(workflow, ttl_ms)
end
