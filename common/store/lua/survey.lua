-- survey: what a planner looks at, at one instant: the heads of the line's lanes, and the ready instances with all they have. Writes nothing.
-- KEYS[1] prefix
-- ARGV 1 requests of each lane, and of each queue, at most; 2 of all lanes together, but one of each; 3 msgpack map
--   {instance = {epoch, cache version}}: caches the caller holds
-- returns {now, plans carried out, {request, its key, its last fencing token ('' for none), 1 if it must run alone (see reap), else 0, ...}
--   lane by lane, {{instance, epoch, serves, profile, load, cache version, cache (nil: the caller holds it), {queued request, its key, ...},
--   {claimed request, ...}, 1 if it is shut (see is_shut), else 0}, ...}}; no instances where nothing is in the line
--@include base
--@include shut
local most = ARGV[1] - 1
local line, seen, held = {}, {}, cmsgpack.unpack(ARGV[3])
local lanes = redis.call('SMEMBERS', p .. 'lanes')
lanes[#lanes + 1] = 'line'
local share = math.max(1, math.floor(ARGV[2] / #lanes))
for _, lane in ipairs(lanes) do
  local head = redis.call('ZRANGE', p .. 'queue:' .. lane, 0, math.min(most, share - 1), 'WITHSCORES')
  for i = 1, #head, 2 do
    local token, alone = unpack(try('HMGET', p .. 'request:' .. head[i], 'token', 'alone') or {})
    for _, value in ipairs({head[i], head[i + 1], token or '', alone and 1 or 0}) do line[#line + 1] = value end
  end
end
for _, name in ipairs(#line > 0 and redis.call('ZRANGE', p .. 'instances', 0, -1) or {}) do
  local key = p .. 'instance:' .. name
  local status, epoch, serves, profile, load, version =
    unpack(try('HMGET', key, 'status', 'epoch', 'serves', 'profile', 'load', 'cache_version') or {})
  if status == 'ready' then
    local known = held[name]
    local cache = false
    if not (known and known[1] == epoch and known[2] == (version or '')) then cache = redis.call('HGET', key, 'cache') or '' end
    local queued = redis.call('ZRANGE', p .. 'queue:' .. name, 0, most, 'WITHSCORES')
    local claimed = redis.call('SMEMBERS', p .. 'claimed:' .. name)
    local shut = is_shut(claimed, queued) and 1 or 0
    seen[#seen + 1] = {name, epoch, serves, profile, load, version or '', cache, queued, claimed, shut}
  end
end
return {now, tonumber(redis.call('GET', p .. 'plans') or 0), line, seen}
