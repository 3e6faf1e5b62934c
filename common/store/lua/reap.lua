-- reap: leases nobody renewed, and those that were forfeited, end. The request keeps its age and is given back: its instance may be
-- gone, or have come back as another; after too many losses it is a dead letter and its workflow is told. With its last one left it
-- must run alone: whoever is lost then is lost with this request and no other, and none is given up for what its neighbours did.
-- KEYS[1] prefix
-- ARGV 1 lease ms, 2 losses allowed, 3 leases at most that are told
-- returns {'grace'} within one lease of a server start or failover, or of a time in which nobody looked for half a lease: then
--   nobody may have been able to renew; else
--   {'ok', {request, workflow, node, claimant, losses, why (as forfeit was told, else ''), ...}}: what was lost; nothing when no
--   lease is left that has ended
--@include base
--@include post
--@include queue
--@include tenant
--@include tell
--@include reroute
--@include give_back
--@include bury
-- Read here: between two commands another server may have taken over.
local run, run_id = p .. 'server', string.match(redis.call('INFO', 'server'), '\nrun_id:(%w+)')
local lease, known, since, looked, late =
  tonumber(ARGV[1]), unpack(redis.call('HMGET', run, 'run_id', 'since', 'looked', 'late'))
since, late = tonumber(since or 0), tonumber(late or 0)
-- Thrice on end at most: looks that always come late must not keep what the dead held for ever.
if known ~= run_id or now - (looked or 0) > lease / 2 and late < 3 then since, late = now, late + 1 end
local grace = now - since < lease
redis.call('ZREM', p .. 'leases', '') -- of nothing: after a removal a full Redis takes the write too
redis.call('HSET', run, 'run_id', run_id, 'since', since, 'looked', now, 'late', grace and late or 0)
if grace then return {'grace'} end
local lost, unread, most = {}, {}, tonumber(ARGV[2])
local function lose(id)
  local record = p .. 'request:' .. id
  local workflow, node, claimant, before, token, forfeited, why =
    unpack(try('HMGET', record, 'workflow', 'node', 'claimant', 'owners', 'token', 'forfeited', 'why') or {})
  if not (workflow and node) then
    if not reroute(id) then unread[#unread + 1] = id end
    return
  end
  local owners = {}
  for owner in string.gmatch((before or '') .. ' ' .. (claimant or ''), '%S+') do owners[#owners + 1] = owner end
  owners = table.concat(owners, ' ', math.max(1, #owners - 9))
  try('HSET', record, 'owners', owners)
  local losses = try('HINCRBY', record, 'losses', 1) or most
  for _, value in ipairs({id, workflow, node, claimant or '', losses, forfeited == token and why or ''}) do lost[#lost + 1] = value end
  if losses >= most then
    bury(workflow, node, id, 'its worker or engine was lost ' .. losses .. ' times', owners)
    tell(id, workflow, 'lost ' .. id .. ' ' .. node .. ' ' .. losses)
  else
    if losses >= most - 1 then redis.call('HSET', record, 'alone', 1) end
    give_back(id, workflow, node)
  end
end
repeat -- a lease without a request that can be read just ends: it does not hide those behind it
  local ids = redis.call('ZRANGEBYSCORE', p .. 'leases', '-inf', now, 'LIMIT', 0, ARGV[3])
  for _, id in ipairs(ids) do
    lose(id)
    redis.call('ZREM', p .. 'leases', id) -- last: refused by a missing right before, it is looked at again
  end
until #lost > 0 or #ids == 0
if #unread > 0 then search(unread) end
return {'ok', lost}
