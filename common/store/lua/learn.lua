-- learn: add what a coordinator has observed to what all have learned, which fades by as much as that counts.
-- KEYS[1] prefix
-- ARGV 1 observations after which what was seen before has faded to 1/e, 2 msgpack map {name = {count, sum, ...}, ...},
--      3 call id (the same again adds nothing)
-- returns how many names there are now
--@include base
--@include again
local known = kept(ARGV[3])
if known then return known end
local key, window = p .. 'learned', tonumber(ARGV[1])
for name, later in pairs(cmsgpack.unpack(ARGV[2])) do
  local readable, earlier = pcall(cmsgpack.unpack, redis.call('HGET', key, name) or '')
  if readable and type(earlier) == 'table' and #earlier == #later then
    local faded = 1 - later[1] / window
    for i = 1, #later do later[i] = later[i] + faded * (tonumber(earlier[i]) or 0) end
  end
  redis.call('HSET', key, name, cmsgpack.pack(later))
end
return keep(ARGV[3], redis.call('HLEN', key))
