-- claim: pop the most urgent requests that can start now, each under a lease and a fencing token that only grows.
-- KEYS[1] prefix
-- ARGV 1 instance, 2 epoch ('' where none is kept), 3 claimant, 4 call id (the same again gives the same answer; for the tools
--      the ticket, which is used up), 5 lease ms, 6 requests at most, 7 prompt tokens that may still be started (the last one
--      taken may go beyond), 8 KV tokens free, 9 '1' where nothing runs: then the first is taken whatever its length, and one that
--      must run alone (see reap) is taken too, and nothing with it
-- returns {'ok', now, {id, token, {payload, enqueued_at, deadline_at, prefix, prompt_tokens, expected_tokens, slo_ms, key_ms,
--   alone}, ...}, requests still queued}, or {why not} (see unseated)
--@include base
--@include post
--@include queue
--@include tenant
--@include reroute
--@include seat
local why_not = unseated(ARGV[1], ARGV[2])
if why_not then return {why_not} end
if ARGV[1] == 'tools' then redis.call('ZREM', p .. 'relayed', ARGV[4]) end
local queue, answer, given = p .. 'queue:' .. ARGV[1], {}, {ARGV[4]}
local last = p .. 'claim:' .. ARGV[3]
local function fields(record)
  return try('HMGET', record, 'payload', 'enqueued_at', 'deadline_at', 'prefix', 'prompt_tokens', 'expected_tokens', 'slo_ms', 'key_ms',
    'alone')
end
local function give(id, token)
  for _, value in ipairs({id, token, fields(p .. 'request:' .. id)}) do answer[#answer + 1] = value end
end
local before = redis.call('LRANGE', last, 0, -1)
if before[1] == ARGV[4] then
  for i = 2, #before do
    local claimant, token = unpack(try('HMGET', p .. 'request:' .. before[i], 'claimant', 'token') or {})
    if claimant == ARGV[3] and redis.call('ZSCORE', p .. 'leases', before[i]) then give(before[i], token) end
  end
  return {'ok', now, answer, redis.call('ZCARD', queue)}
end
local most, prefill, kv, unread = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8]), false
while most > 0 and prefill > 0 do
  local id, score = unpack(redis.call('ZRANGE', queue, 0, 0, 'WITHSCORES'))
  if not id then break end
  local record = p .. 'request:' .. id
  local payload, prompt, alone, token = unpack(try('HMGET', record, 'payload', 'prompt_tokens', 'alone', 'token') or {})
  prompt = tonumber(prompt or '') or 0
  if payload and (alone or prompt > kv) and not (ARGV[9] == '1' and #given == 1) then break end
  redis.call('ZREM', queue, id)
  if not payload then -- there is nothing to run: the others must not wait behind it
    unread = not reroute(id) or unread
  else
    redis.call('ZADD', p .. 'leases', now + ARGV[5], id)
    redis.call('SADD', p .. 'claimed:' .. ARGV[1], id)
    -- A time, not a count, as with versions: a claim that a failover has lost has not the token of the one made instead.
    token = string.format('%.0f', math.max((whole(token) or 0) + 1, now))
    redis.call('HSET', record, 'token', token, 'claimant', ARGV[3], 'claimed_at', now, 'key_ms', score)
    give(id, token)
    given[#given + 1] = id
    most, prefill, kv = alone and 0 or most - 1, prefill - prompt, kv - prompt
  end
end
if unread then recount(ARGV[1]) end
if #given > 1 then
  redis.call('DEL', last)
  for _, id in ipairs(given) do redis.call('RPUSH', last, id) end
  redis.call('PEXPIRE', last, ARGV[5])
end
return {'ok', now, answer, redis.call('ZCARD', queue)}
