-- refuse: the submitter is told why under its entry's id, and the entry is settled; once, whoever else has taken it.
-- KEYS[1] prefix
-- ARGV 1 submission entry id, 2 event field, 3 event (opaque), 4 ms the answer is kept,
--      5 why it is a dead letter ('' where it is none), 6 the coordinator that was lost with it ('' for none)
-- returns 1, or 0 when the entry was settled before: nothing is written then
--@include base
--@include settle
--@include bury
--@include reply
if #redis.call('XRANGE', p .. 'submissions', ARGV[1], ARGV[1]) == 0 then return 0 end
reply(ARGV[1], 'rejected', ARGV[2], ARGV[3], ARGV[4]) -- first: refused by a missing right, the entry is still there
settle('submissions', ARGV[1])
if ARGV[5] ~= '' then bury(ARGV[1], '', '', ARGV[5], ARGV[6]) end
redis.call('HINCRBY', p .. 'ended', 'rejected', 1)
return 1
