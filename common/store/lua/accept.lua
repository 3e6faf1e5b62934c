-- accept: a valid submission becomes a running workflow, once per id, if no limit leaves it no room.
-- KEYS[1] prefix
-- ARGV 1 workflow id, 2 submission entry id, 3 document digest, 4 head (opaque), 5 definition digest, 6 definition (opaque),
--      7 ms the definition is kept, 8 encoding of the submission, 9 and 10 event as json and as msgpack (opaque),
--      11 events kept at most, 12 ms an answer to the entry is kept, 13 tenant, 14 to 16 limits of submissions, workflows and queued
--      requests where none are set, 17 the dead letter that this is submitted again for ('' for none): it has served its turn
-- returns {'accepted'}, {'same'} (id and document known already, or the entry is settled: who read it too has done it), {'other'} (id
--   known with another document) or {'full', limit, how much is taken, what it is set to, ms in which there may be room}; nothing is
--   written with the last two
--@include base
--@include post
--@include settle
--@include limits
--@include pace
--@include admission
--@include reply
--@include uncount
--@include definition
if #redis.call('XRANGE', p .. 'submissions', ARGV[2], ARGV[2]) == 0 then return {'same'} end
local key = p .. 'workflow:' .. ARGV[1]
local known = redis.call('HGET', key, 'document')
local answer, is_new = 'accepted', false
if known then
  answer = known == ARGV[3] and 'same' or 'other'
else
  local full = full_cell(ARGV[14], ARGV[15], ARGV[16]) or full_tenant(ARGV[13])
  if full then return {'full', unpack(full)} end
  -- Versions begin at the time of acceptance: an id that is used again never meets what is remembered of its first use.
  redis.call('HSET', key, 'version', now, 'status', 'running', 'document', ARGV[3], 'head', ARGV[4],
    'accepted:json', ARGV[9], 'accepted:msgpack', ARGV[10])
  redis.call('ZADD', p .. 'live', now, ARGV[1])
  is_new = define(ARGV[5], ARGV[6], ARGV[7])
end
-- A workflow known already is told as it was accepted, since it keeps its first deadline; in the encoding of this submission.
local event = redis.call('HGET', key, 'accepted:' .. ARGV[8])
if answer == 'accepted' then
  redis.call('XADD', key .. ':events', 'MAXLEN', '~', ARGV[11], '*', 'type', 'accepted', ARGV[8], event)
  post(ARGV[1], 'submitted') -- before what is counted: refused there by a missing right, it runs all the same
  uncount(ARGV[1]) -- of an earlier use of the id that a coordinator of an older version has ended
  redis.call('HSET', p .. 'workflow_tenants', ARGV[1], ARGV[13])
  redis.call('HINCRBY', p .. 'running', ARGV[13], 1)
  count_use(ARGV[1], ARGV[5], is_new, ARGV[7])
end
if answer ~= 'other' then
  if ARGV[2] ~= ARGV[1] then
    reply(ARGV[2], 'accepted', ARGV[8], event, ARGV[12])
  end
  settle('submissions', ARGV[2])
  if ARGV[17] ~= '' then redis.call('XDEL', p .. 'dead', ARGV[17]) end
end
return {answer}
