-- forget_instances: what is counted of an instance is forgotten once its record is: names that never come back would stay for ever.
-- KEYS[1] prefix
-- returns how many counts were forgotten
--@include base
local forgotten = 0
for _, counts in ipairs({'backlog', 'served'}) do
  for _, name in ipairs(redis.call('HKEYS', p .. counts)) do
    local of_none = name == 'tools' or name == 'line' -- which keep no record
    if not of_none and redis.call('EXISTS', p .. 'instance:' .. name) == 0 then
      forgotten = forgotten + redis.call('HDEL', p .. counts, name)
    end
  end
end
return forgotten
