-- forget_tenants: counters are forgotten of those who have nothing outstanding and would be lifted anyway when they come back (see
-- charge): of all, where nobody has anything. Else whoever was here once would be remembered for ever.
-- KEYS[1] prefix
-- returns how many were forgotten
--@include base
local counters, outstanding, least, forgotten = p .. 'tenants', p .. 'outstanding', math.huge, 0
for _, tenant in ipairs(redis.call('HKEYS', outstanding)) do
  least = math.min(least, tonumber(redis.call('HGET', counters, tenant) or 0))
end
local charged = redis.call('HGETALL', counters)
for i = 1, #charged, 2 do
  if tonumber(charged[i + 1]) <= least and redis.call('HEXISTS', outstanding, charged[i]) == 0 then
    forgotten = forgotten + redis.call('HDEL', counters, charged[i])
  end
end
return forgotten
