-- ask: something is asked of a running workflow: a message to its coordinator. Its submission is settled with that: it is not carried
-- out again.
-- KEYS[1] prefix
-- ARGV 1 workflow id, 2 message, 3 submission entry id ('' for none)
-- returns 1, also when the entry was settled before (it was carried out); 0 when no such workflow is running: nothing is written
--@include base
--@include post
--@include settle
if ARGV[3] ~= '' and #redis.call('XRANGE', p .. 'submissions', ARGV[3], ARGV[3]) == 0 then return 1 end
if not redis.call('ZSCORE', p .. 'live', ARGV[1]) then return 0 end
settle('submissions', ARGV[3])
post(ARGV[1], ARGV[2])
return 1
