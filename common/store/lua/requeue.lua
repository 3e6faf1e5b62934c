-- requeue: what a dead letter is about is submitted again. The letter stays until that is accepted.
-- KEYS[1] prefix
-- ARGV 1 letter id, 2 the document to submit, as json
-- returns the new entry's id; '' where there is no such letter (any more): nothing is written then
--@include base
if #redis.call('XRANGE', p .. 'dead', ARGV[1], ARGV[1]) == 0 then return '' end
return redis.call('XADD', p .. 'submissions', '*', 'json', ARGV[2])
