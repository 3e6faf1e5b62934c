-- uncount: a workflow does not run any more, so it is not counted among its tenant's.
local function uncount(workflow)
  local tenant = redis.call('HGET', p .. 'workflow_tenants', workflow)
  if not tenant then return end
  redis.call('HDEL', p .. 'workflow_tenants', workflow)
  if redis.call('HINCRBY', p .. 'running', tenant, -1) <= 0 then redis.call('HDEL', p .. 'running', tenant) end
end
