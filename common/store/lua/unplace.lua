-- unplace: requests of the line that no instance can take go back to their workflows, which route them anew.
-- KEYS[1] prefix
-- ARGV 1.. requests
-- returns how many waited in the line
--@include base
--@include post
--@include queue
--@include tenant
--@include reroute
-- The lane in which a request waits: the one that its record names or, where that cannot be read, any.
local function lane_of(id)
  local named = try('HGET', p .. 'request:' .. id, 'lane')
  local lanes = named and {named} or redis.call('SMEMBERS', p .. 'lanes')
  if not named then lanes[#lanes + 1] = 'line' end
  for _, lane in ipairs(lanes) do
    if redis.call('ZSCORE', p .. 'queue:' .. lane, id) then return lane end
  end
end
local given, unread = 0, false
for _, id in ipairs(ARGV) do
  local lane = lane_of(id)
  if lane then
    given = given + 1
    unread = not reroute(id) or unread
    unqueue(id, lane)
  end
end
if unread then recount('line') end
return given
