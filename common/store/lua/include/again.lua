-- keep, kept: the answer to one call, for ten minutes: sent again because its reply was lost, it is answered the same.
local function keep(call, answer)
  redis.call('SET', p .. 'answer:' .. call, answer, 'PX', 600000)
  return answer
end
local function kept(call) return tonumber(redis.call('GET', p .. 'answer:' .. call) or nil) end
