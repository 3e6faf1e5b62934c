-- reroute: a request goes back to its workflow, which pushes it anew, with all that its record may lack. Where that does not tell of which
-- stage it is, its workflow fails: else it would wait for ever. Returns false where nobody knows where it was, see detach.
local function reroute(id)
  local workflow, node = unpack(try('HMGET', p .. 'request:' .. id, 'workflow', 'node') or {})
  local told = workflow and post(workflow, node and 'evacuated ' .. id .. ' ' .. node or 'damaged ' .. id)
  local found = detach(id)
  if not (told and node) then discharge(id, '') end -- nobody asks for it again, see tell
  return found
end
