-- bury: a dead letter: what was given up for good, why, and who lost it: names parted by blanks, of which the last ten are kept.
-- Name and tenant are taken from what was told when the workflow was accepted; a submission that was refused has none.
local function bury(workflow, stage, request, reason, owners)
  local read, told = pcall(cjson.decode, try('HGET', p .. 'workflow:' .. workflow, 'accepted:json') or '{}')
  local accepted = read and type(told) == 'table' and told or {}
  try('XADD', p .. 'dead', 'MAXLEN', '~', 10000, '*', 'workflow', workflow, 'name', tostring(accepted.name or ''),
    'tenant', tostring(accepted.tenant or ''), 'stage', stage, 'request', request, 'reason', reason, 'owners', owners)
end
