-- relay: the tickets that RQ needs now, so that each tool request that waits has one. A ticket counts from here on until a
-- claim uses it up; one that is given, not used and no longer in RQ's queue is lost after a while, and another is given.
-- KEYS[1] prefix
-- ARGV 1 call id (the same again gives the same tickets), 2 jobs in RQ's queue, 3 ms after which a ticket not in the queue is lost,
--      4 tickets at most
-- returns {ticket, ...}: new ones, counted as written
--@include base
local given, tickets = p .. 'relayed', {}
local function name(i) return ARGV[1] .. '-' .. i end
while redis.call('ZSCORE', given, name(#tickets + 1)) do tickets[#tickets + 1] = name(#tickets + 1) end
if #tickets > 0 then return tickets end
-- RQ takes the oldest first, so those that are not in its queue are the oldest: at work, about to claim, or lost.
local gone = redis.call('ZCARD', given) - ARGV[2]
local lost = math.min(gone, redis.call('ZCOUNT', given, '-inf', now - ARGV[3]))
if lost > 0 then redis.call('ZREMRANGEBYRANK', given, 0, lost - 1) end
local missing = redis.call('ZCARD', p .. 'queue:tools') - redis.call('ZCARD', given)
for i = 1, math.min(missing, ARGV[4]) do
  tickets[i] = name(i)
  redis.call('ZADD', given, now, tickets[i])
end
return tickets
