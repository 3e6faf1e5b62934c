-- debit: tokens off the bucket of a tenant that is limited to a rate of them; less than none goes back into it. What is kept is the
-- time at which it is full again, so it fills by itself.
local function debit(tenant, tokens, rate)
  local full_at = math.max(now, tonumber(redis.call('HGET', p .. 'quotas', tenant) or 0))
  redis.call('HSET', p .. 'quotas', tenant, string.format('%.3f', full_at + 1000 * tokens / rate))
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
  local counters, outstanding = p .. 'tenants', p .. 'outstanding'
  if redis.call('HEXISTS', outstanding, tenant) == 0 then
    local least = math.huge
    for _, other in ipairs(redis.call('HKEYS', outstanding)) do
      least = math.min(least, tonumber(redis.call('HGET', counters, other) or 0))
    end
    local own = tonumber(redis.call('HGET', counters, tenant) or 0)
    if own < least and least < math.huge then redis.call('HSET', counters, tenant, string.format('%.0f', least)) end
  end
  redis.call('HINCRBY', counters, tenant, tokens)
  redis.call('HINCRBY', outstanding, tenant, 1)
end

-- discharge: a request has ended; `tokens` is what it has cost ('' where nobody knows: then as expected, or nothing if it never
-- ran). Its record goes with it.
local function discharge(id, tokens)
  local tenant, charged, claimed_at, rate =
    unpack(try('HMGET', p .. 'request:' .. id, 'tenant', 'charged', 'claimed_at', 'rate') or {})
  if (tokens or '') == '' then tokens = claimed_at and charged or 0 end
  if tenant and charged then
    if redis.call('HINCRBY', p .. 'outstanding', tenant, -1) <= 0 then redis.call('HDEL', p .. 'outstanding', tenant) end
    redis.call('HINCRBY', p .. 'tenants', tenant, tokens - charged)
    if tonumber(rate or nil) then debit(tenant, tokens - charged, rate) end
  end
  redis.call('DEL', p .. 'request:' .. id)
end
