-- promote: delayed nodes that are due go back to their workflow, whose coordinator dispatches them.
-- KEYS[1] prefix
-- ARGV 1 at most
-- returns how many were due
--@include base
--@include post
local due = redis.call('ZRANGEBYSCORE', p .. 'delayed', '-inf', now, 'LIMIT', 0, ARGV[1])
for _, member in ipairs(due) do
  redis.call('ZREM', p .. 'delayed', member)
  local workflow, node = string.match(member, '^(%S+) (%S+)$')
  if workflow then post(workflow, 'due - ' .. node) end
end
return #due
