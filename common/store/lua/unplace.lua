-- unplace: requests of the line that no instance can take go back to their workflows, which route them anew.
-- KEYS[1] prefix
-- ARGV 1.. requests
-- returns how many waited in the line
--@include base
--@include post
--@include queue
--@include tenant
--@include tell
local given = 0
for _, id in ipairs(ARGV) do
  if redis.call('ZSCORE', p .. 'queue:line', id) then
    given = given + 1
    local workflow, node = unpack(try('HMGET', p .. 'request:' .. id, 'workflow', 'node') or {})
    detach(id)
    redis.call('ZREM', p .. 'queue:line', id) -- also where its record cannot be read
    if workflow and node then tell(id, workflow, 'evacuated ' .. id .. ' ' .. node) end
  end
end
return given
