-- debit: tokens off the bucket of a tenant that is limited to a rate of them; less than none goes back into it. What is kept is the
-- time at which it is full again, so it fills by itself.
local function debit(tenant, tokens, rate)
  local full_at = math.max(now, tonumber(redis.call('HGET', p .. 'quotas', tenant) or 0))
  redis.call('HSET', p .. 'quotas', tenant, string.format('%.3f', full_at + 1000 * tokens / rate))
end

-- least: what the one has had who has had least of those with requests that have not ended; nil where nobody has any. Those before it
-- make no difference any more, since they would be lifted to it: they are forgotten.
local function least()
  while true do
    local tenant, had = unpack(redis.call('ZRANGE', p .. 'shares', 0, 0, 'WITHSCORES'))
    if not tenant then return nil end
    if redis.call('HEXISTS', p .. 'outstanding', tenant) == 1 then return had end
    redis.call('ZREM', p .. 'shares', tenant)
  end
end

-- charge: a tenant pays for a request once, what is expected of it; `outstanding` counts its requests that are paid for and have not
-- ended. A tenant that has none is first lifted to the least of those that have: nobody saves up while away. `rate`: its limit of
-- tokens per second, if it has one.
local function charge(id, tenant, tokens, rate)
  if tenant == '' or redis.call('HSETNX', p .. 'request:' .. id, 'charged', tokens) == 0 then return end
  redis.call('HSET', p .. 'request:' .. id, 'tenant', tenant)
  if rate then
    redis.call('HSET', p .. 'request:' .. id, 'rate', rate)
    debit(tenant, tokens, rate)
  end
  if redis.call('HEXISTS', p .. 'outstanding', tenant) == 0 then
    local lift = least()
    if lift and not redis.call('ZSCORE', p .. 'shares', tenant) then redis.call('ZADD', p .. 'shares', lift, tenant) end
  end
  redis.call('ZINCRBY', p .. 'shares', tokens, tenant)
  redis.call('HINCRBY', p .. 'outstanding', tenant, 1)
end

-- discharge: a request has ended; `tokens` is what it has cost ('' where nobody knows: then as expected, or nothing if it never
-- ran). Its record goes with it.
local function discharge(id, tokens)
  local tenant, charged, claimed_at, rate =
    unpack(try('HMGET', p .. 'request:' .. id, 'tenant', 'charged', 'claimed_at', 'rate') or {})
  charged = whole(charged) or 0
  if (tokens or '') == '' then tokens = claimed_at and charged or 0 end
  if tenant then
    if redis.call('HINCRBY', p .. 'outstanding', tenant, -1) <= 0 then redis.call('HDEL', p .. 'outstanding', tenant) end
    redis.call('ZINCRBY', p .. 'shares', tokens - charged, tenant)
    if tonumber(rate or nil) then debit(tenant, tokens - charged, rate) end
  end
  redis.call('DEL', p .. 'request:' .. id)
end
