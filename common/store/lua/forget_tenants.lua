-- forget_tenants: counters are forgotten of those who have nothing outstanding and would be lifted anyway when they come back (see
-- least): of all, where nobody has anything. So are buckets that are full. Else whoever was here once would be remembered for ever.
-- KEYS[1] prefix
-- ARGV 1 counters at most of those who have nothing outstanding: beyond, those go that gain least by it
-- returns how many counters were forgotten
--@include base
--@include tenant
local shares, idle = p .. 'shares', 0
local before = redis.call('ZCARD', shares)
least()
for _, tenant in ipairs(redis.call('ZREVRANGE', shares, 0, -1)) do
  if redis.call('HEXISTS', p .. 'outstanding', tenant) == 0 then
    idle = idle + 1
    if idle > tonumber(ARGV[1]) then redis.call('ZREM', shares, tenant) end
  end
end
local buckets = redis.call('HGETALL', p .. 'quotas')
for i = 1, #buckets, 2 do
  if tonumber(buckets[i + 1]) <= now then redis.call('HDEL', p .. 'quotas', buckets[i]) end
end
return before - redis.call('ZCARD', shares)
