-- shed: submissions that limits refuse are told so, and settled; each once, whoever else has read it. There may be very many of
-- them: beyond a number the oldest answers are forgotten.
-- KEYS[1] prefix
-- ARGV 1 ms their answers are kept, 2 answers kept at most, 3.. entry id, event field, event (opaque), ...
-- returns how many were told
--@include base
--@include settle
--@include reply
local shed, told = p .. 'shed', 0
for i = 3, #ARGV, 3 do
  if #redis.call('XRANGE', p .. 'submissions', ARGV[i], ARGV[i]) == 1 then
    reply(ARGV[i], 'rejected', ARGV[i + 1], ARGV[i + 2], ARGV[1]) -- first, as in refuse
    settle('submissions', ARGV[i])
    redis.call('RPUSH', shed, ARGV[i])
    told = told + 1
  end
end
if told == 0 then return 0 end
redis.call('PEXPIRE', shed, ARGV[1])
redis.call('HINCRBY', p .. 'ended', 'shed', told)
local over = redis.call('LLEN', shed) - ARGV[2]
for _, entry in ipairs(over > 0 and redis.call('LPOP', shed, over) or {}) do
  redis.call('DEL', p .. 'workflow:' .. entry .. ':events')
end
return told
