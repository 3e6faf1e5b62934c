-- mail: the oldest messages of a workflow, so many at most, and a word that stands for just these ('' for none). Equal messages say the
-- same: one of a completion has its token, so it tells of one output.
local function mail(workflow, most)
  local messages = tonumber(most) > 0 and redis.call('LRANGE', p .. 'workflow:' .. workflow .. ':mailbox', 0, most - 1) or {}
  return messages, #messages > 0 and redis.sha1hex(table.concat(messages, '\n')) or ''
end
