-- relay: which queued tool requests need a ticket in RQ: those never relayed, and those relayed long ago and still not claimed.
-- KEYS[1] prefix
-- ARGV 1 ms after which a ticket counts as lost, 2 at most
-- returns {request-token, ...}, most urgent first, the token being that of its last claim: each attempt has a ticket of its own
--@include base
local ids = {}
redis.call('ZREMRANGEBYSCORE', p .. 'relayed', '-inf', now - ARGV[1])
for _, id in ipairs(redis.call('ZRANGE', p .. 'queue:tools', 0, -1)) do
  if #ids >= tonumber(ARGV[2]) then break end
  if redis.call('ZADD', p .. 'relayed', 'NX', now, id) == 1 then
    ids[#ids + 1] = id .. '-' .. (redis.call('HGET', p .. 'request:' .. id, 'token') or 0)
  end
end
return ids
