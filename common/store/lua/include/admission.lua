-- waiting: requests in all queues together.
local function waiting()
  local count, others = 0, {'line', 'tools'}
  for _, names in ipairs({redis.call('ZRANGE', p .. 'instances', 0, -1), redis.call('SMEMBERS', p .. 'lanes'), others}) do
    for _, name in ipairs(names) do count = count + (try('ZCARD', p .. 'queue:' .. name) or 0) end
  end
  return count
end

-- full_cell: the limit of the cell that leaves no room for one more workflow, if one does: {its name, how much is taken, the limit, ms
-- in which there may be room}. The limits given count where none are set. A submission that is looked at is still in the stream.
local function full_cell(submissions, workflows, queued)
  local entries, most_entries = redis.call('XLEN', p .. 'submissions'), limit('submissions', submissions)
  if entries > most_entries then return {'submissions', entries, most_entries, stay_ms()} end
  local live, most = redis.call('ZCARD', p .. 'live'), limit('workflows', workflows)
  if live >= most then return {'workflows', live, most, stay_ms()} end
  local count, most_queued = waiting(), limit('queued', queued)
  if count >= most_queued then return {'queued', count, most_queued, stay_ms()} end
end

-- full_tenant: the same for a tenant's own limits. Its bucket of tokens holds those of a minute; `quotas` has when it is full again.
local function full_tenant(tenant)
  local running, most = tonumber(redis.call('HGET', p .. 'running', tenant) or 0), tenant_limit('workflows', tenant)
  if most and running >= most then return {'tenant_workflows', running, most, stay_ms()} end
  local rate = tenant_limit('tokens_per_s', tenant)
  local owed_ms = tonumber(redis.call('HGET', p .. 'quotas', tenant) or 0) - now - 60000
  if rate and owed_ms >= 0 then return {'tenant_tokens_per_s', rate, rate, owed_ms} end
end

-- full_memory: the same where nine tenths are taken of what the server may hold: the rest is for what runs. Who may not run INFO does
-- not know.
local function full_memory()
  local told = redis.pcall('INFO', 'memory')
  if type(told) ~= 'string' then return nil end
  local used, most = tonumber(string.match(told, '\nused_memory:(%d+)')), tonumber(string.match(told, '\nmaxmemory:(%d+)'))
  if used and most and most > 0 and used > 0.9 * most then return {'memory', used, math.floor(0.9 * most), stay_ms()} end
end
