-- shut: the instances where one that must run alone (see reap) runs or is among the next: what is bound to them waits for that. Writes
-- nothing.
-- KEYS[1] prefix
-- returns {instance, ...}
--@include base
--@include shut
local found = {}
for _, name in ipairs(redis.call('ZRANGE', p .. 'instances', 0, -1)) do
  local claimed, queued = redis.call('SMEMBERS', p .. 'claimed:' .. name), redis.call('ZRANGE', p .. 'queue:' .. name, 0, 7, 'WITHSCORES')
  if is_shut(claimed, queued) then found[#found + 1] = name end
end
return found
