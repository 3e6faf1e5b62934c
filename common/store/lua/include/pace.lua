-- The pace at which workflows end, as a count of those that did: each counts for less the longer ago it was, 1/e after LATELY_MS.
local LATELY_MS = 30000
local function ended_lately()
  local count, at = unpack(try('HMGET', p .. 'pace', 'ended', 'at') or {})
  local age_ms = math.max(0, now - (tonumber(at or nil) or now))
  return (tonumber(count or nil) or 0) * math.exp(-age_ms / LATELY_MS)
end

-- count_end: one more has ended.
local function count_end() redis.call('HSET', p .. 'pace', 'ended', ended_lately() + 1, 'at', now) end

-- stay_ms: how long a workflow takes at this pace, a minute at most: in that time as many end as run now.
local function stay_ms()
  return math.min(60000, redis.call('ZCARD', p .. 'live') * LATELY_MS / ended_lately())
end
