-- abandon: a workflow that cannot be read, stepped or committed ends as failed, whatever is kept of it, and is a dead letter.
-- KEYS[1] prefix
-- ARGV 1 workflow id, 2 completion entry id ('' for none), 3 event field, 4 event and result (opaque), 5 ms all of it is kept,
--      6 why, as a dead letter says it, 7 the coordinator that was lost with it ('' for none), 8.. requests to drop
-- returns {1, 0} done; {-1, 0} no such running workflow; the entry is settled either way
--@include base
--@include queue
--@include tenant
--@include pace
--@include uncount
--@include definition
--@include finish
--@include settle
--@include bury
local key = p .. 'workflow:' .. ARGV[1]
settle('completions', ARGV[2])
if not redis.call('ZSCORE', p .. 'live', ARGV[1]) then return {-1, 0} end
for i = 8, #ARGV do
  detach(ARGV[i])
  discharge(ARGV[i], '')
end
for name, kind in pairs({[key] = 'hash', [key .. ':events'] = 'stream'}) do
  if redis.call('TYPE', name).ok ~= kind then redis.call('DEL', name) end
end
redis.call('ZREM', p .. 'delayed', ARGV[1] .. ' @deadline')
bury(ARGV[1], '', '', ARGV[6], ARGV[7])
redis.call('HSETNX', key, 'document', '') -- the id stays taken
redis.call('XADD', key .. ':events', '*', 'type', 'failed', ARGV[3], ARGV[4])
finish(ARGV[1], 'failed', ARGV[4], ARGV[5])
return {1, 0}
