-- post: put a message in a workflow's mailbox and ring for a coordinator, unless one is already called.
-- Mail for a workflow that has ended or never was is dropped. Returns whether it was posted.
local function post(workflow, message)
  local key = p .. 'workflow:' .. workflow
  if redis.call('HGET', key, 'status') ~= 'running' then return false end
  redis.call('RPUSH', key .. ':mailbox', message)
  if redis.call('HSETNX', key, 'rung', 1) == 1 then
    redis.call('XADD', p .. 'completions', '*', 'workflow', workflow)
  end
  return true
end
