-- learn: add what a coordinator has observed to what all have learned, which fades by as much as that counts.
-- KEYS[1] prefix
-- ARGV 1 observations after which what was seen before has faded to 1/e, 2 msgpack map {name = {count, sum, ...}, ...}
-- returns how many names there are now
--@include base
local key, window = p .. 'learned', tonumber(ARGV[1])
for name, later in pairs(cmsgpack.unpack(ARGV[2])) do
  local readable, earlier = pcall(cmsgpack.unpack, redis.call('HGET', key, name) or '')
  if readable and type(earlier) == 'table' and #earlier == #later then
    local faded = 1 - later[1] / window
    for i = 1, #later do later[i] = later[i] + faded * (tonumber(earlier[i]) or 0) end
  end
  redis.call('HSET', key, name, cmsgpack.pack(later))
end
return redis.call('HLEN', key)
