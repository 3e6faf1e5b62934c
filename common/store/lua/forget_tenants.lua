-- forget_tenants: counters are forgotten of those who have nothing outstanding and would be lifted anyway when they come back (see
-- charge): of all, where nobody has anything. So are buckets that are full. Else whoever was here once would be remembered for ever.
-- KEYS[1] prefix
-- ARGV 1 counters at most of those who have nothing outstanding: beyond, those go that gain least by it
-- returns how many counters were forgotten
--@include base
local counters, outstanding, least, forgotten = p .. 'tenants', p .. 'outstanding', math.huge, 0
for _, tenant in ipairs(redis.call('HKEYS', outstanding)) do
  least = math.min(least, tonumber(redis.call('HGET', counters, tenant) or 0))
end
local charged, idle = redis.call('HGETALL', counters), {}
for i = 1, #charged, 2 do
  if redis.call('HEXISTS', outstanding, charged[i]) == 0 then idle[#idle + 1] = {charged[i], tonumber(charged[i + 1])} end
end
table.sort(idle, function(one, other) return one[2] > other[2] end)
for place, tenant in ipairs(idle) do
  if tenant[2] <= least or place > tonumber(ARGV[1]) then forgotten = forgotten + redis.call('HDEL', counters, tenant[1]) end
end
local buckets = redis.call('HGETALL', p .. 'quotas')
for i = 1, #buckets, 2 do
  if tonumber(buckets[i + 1]) <= now then redis.call('HDEL', p .. 'quotas', buckets[i]) end
end
return forgotten
