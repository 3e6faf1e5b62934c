-- purge: a workflow that has ended is forgotten before its time: state, events and result.
-- KEYS[1] prefix
-- ARGV 1 workflow id
-- returns 1, or 0 when it still runs, or nothing is kept of it: nothing is written then
--@include base
local key = p .. 'workflow:' .. ARGV[1]
local status = try('HGET', key, 'status')
if not status or status == 'running' or redis.call('ZSCORE', p .. 'live', ARGV[1]) then return 0 end
redis.call('DEL', key, key .. ':events', key .. ':result', key .. ':mailbox', key .. ':outputs')
return 1
