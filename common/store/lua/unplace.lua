-- unplace: requests of the line that no instance can take go back to their workflows, which route them anew.
-- KEYS[1] prefix
-- ARGV 1.. requests
-- returns how many waited in the line
--@include base
--@include post
--@include queue
--@include tenant
--@include tell
-- The lane in which a request waits, also where its record cannot be read.
local function lane_of(id)
  local lane = queue_of(id, 'line')
  if redis.call('ZSCORE', p .. 'queue:' .. lane, id) then return lane end
  for _, other in ipairs(redis.call('SMEMBERS', p .. 'lanes')) do
    if redis.call('ZSCORE', p .. 'queue:' .. other, id) then return other end
  end
end
local given = 0
for _, id in ipairs(ARGV) do
  local lane = lane_of(id)
  if lane then
    given = given + 1
    local workflow, node = unpack(try('HMGET', p .. 'request:' .. id, 'workflow', 'node') or {})
    detach(id)
    unqueue(id, lane)
    if workflow and node then tell(id, workflow, 'evacuated ' .. id .. ' ' .. node) end
  end
end
return given
