-- is_shut: whether, of what an instance has claimed and queued (each with its key), one that must run alone (see reap) runs there or
-- is among the next 8.
local function is_shut(claimed, queued)
  local function alone(id) return id and try('HGET', p .. 'request:' .. id, 'alone') end
  local shut = not claimed[2] and alone(claimed[1])
  for i = 1, math.min(#queued, 16), 2 do shut = shut or alone(queued[i]) end
  return shut
end
