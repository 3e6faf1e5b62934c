-- abandon: a workflow that cannot be read, stepped or committed ends as failed, whatever is kept of it.
-- KEYS[1] prefix
-- ARGV 1 workflow id, 2 completion entry id ('' for none), 3 event field, 4 event and result (opaque), 5 ms all of it is kept,
--      6.. requests to drop
-- returns {1, 0} done; {-1, 0} no such running workflow; the entry is settled either way
--@include base
--@include queue
--@include tenant
--@include finish
--@include settle
local key = p .. 'workflow:' .. ARGV[1]
settle('completions', ARGV[2])
if not redis.call('ZSCORE', p .. 'live', ARGV[1]) then return {-1, 0} end
for i = 6, #ARGV do
  detach(ARGV[i])
  discharge(ARGV[i], '')
end
for name, kind in pairs({[key] = 'hash', [key .. ':events'] = 'stream'}) do
  if redis.call('TYPE', name).ok ~= kind then redis.call('DEL', name) end
end
redis.call('HSETNX', key, 'document', '') -- the id stays taken
redis.call('XADD', key .. ':events', '*', 'type', 'failed', ARGV[3], ARGV[4])
finish(ARGV[1], 'failed', ARGV[4], ARGV[5])
return {1, 0}
