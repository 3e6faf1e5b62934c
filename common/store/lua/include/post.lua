local ENDED = {completed = true, failed = true, cancelled = true}
-- post: put a message in a workflow's mailbox and ring for a coordinator, unless one is already called.
-- Mail for a workflow that has ended or never was is dropped. Returns whether it was posted.
-- A workflow that cannot be read or take mail is rung for too: the coordinator ends it, and whoever posts goes on.
local function post(workflow, message)
  local key = p .. 'workflow:' .. workflow
  local status, rung = unpack(try('HMGET', key, 'status', 'rung') or {})
  if ENDED[status] or not status and redis.call('EXISTS', key) == 0 then return false end
  local posted = status == 'running' and try('RPUSH', key .. ':mailbox', message)
  if not (posted and rung) then redis.call('XADD', p .. 'completions', '*', 'workflow', workflow) end
  if posted and not rung then redis.call('HSET', key, 'rung', 1) end -- after the call: refused, the next message calls
  return (posted or 0) > 0
end
