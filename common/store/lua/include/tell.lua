-- tell: what became of a request, to its workflow. If that has ended or never was, nobody asks for the request again: it is forgotten.
local function tell(id, workflow, message)
  if not post(workflow, message) then discharge(id, '') end
end
