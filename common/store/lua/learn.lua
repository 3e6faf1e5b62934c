-- learn: add what a coordinator has observed to what all have learned, which fades by as much as that counts. Names are chosen by
-- strangers, so there is a most of them: those that were not observed for the longest time are forgotten.
-- KEYS[1] prefix
-- ARGV 1 observations after which what was seen before has faded to 1/e, 2 msgpack map {name = {count, sum, ...}, ...},
--      3 call id (the same again adds nothing), 4 names at most
-- returns how many names there are now
--@include base
--@include again
local known = kept(ARGV[3])
if known then return known end
local key, seen, window = p .. 'learned', p .. 'learned_at', tonumber(ARGV[1])
for name, later in pairs(cmsgpack.unpack(ARGV[2])) do
  local readable, earlier = pcall(cmsgpack.unpack, redis.call('HGET', key, name) or '')
  if readable and type(earlier) == 'table' and #earlier == #later then
    local faded = 1 - later[1] / window
    for i = 1, #later do later[i] = later[i] + faded * (tonumber(earlier[i]) or 0) end
  end
  redis.call('HSET', key, name, cmsgpack.pack(later))
  redis.call('ZADD', seen, now, name)
end
local over = redis.call('HLEN', key) - ARGV[4]
if over > 0 then
  if redis.call('ZCARD', seen) < redis.call('HLEN', key) then -- an earlier version did not say when: those go first
    for _, name in ipairs(redis.call('HKEYS', key)) do redis.call('ZADD', seen, 'NX', 0, name) end
  end
  for _, name in ipairs(redis.call('ZRANGE', seen, 0, over - 1)) do
    redis.call('HDEL', key, name)
    redis.call('ZREM', seen, name)
  end
end
return keep(ARGV[3], redis.call('HLEN', key))
