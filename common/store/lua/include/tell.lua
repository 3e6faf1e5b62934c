-- tell: what became of a request, to its workflow; then it is taken off its instance. If its workflow has ended or never was, nobody asks
-- for it again: it is forgotten. The workflow waits for this, so it comes first, as in complete.
local function tell(id, workflow, message)
  local told = post(workflow, message)
  detach(id)
  if not told then discharge(id, '') end
end
