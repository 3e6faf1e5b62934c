-- release: a draining worker gives back what it cannot finish; the request is placed or routed anew and loses nothing.
-- KEYS[1] prefix
-- ARGV 1 request, 2 token
-- returns 1, 0 when the lease was lost, or -1 when its record does not tell whose it is: it ends here, see reroute
--@include base
--@include post
--@include queue
--@include tenant
--@include reroute
--@include give_back
local token, workflow, node = unpack(redis.call('HMGET', p .. 'request:' .. ARGV[1], 'token', 'workflow', 'node'))
if token ~= ARGV[2] or not redis.call('ZSCORE', p .. 'leases', ARGV[1]) then return 0 end
redis.call('ZREM', p .. 'leases', '') -- a removal first, of nothing: after it a full Redis takes the writes too
if not (workflow and node) then reroute(ARGV[1]) return -1 end
give_back(ARGV[1], workflow, node)
return 1
