-- survey: what a planner looks at, at one instant: the head of the line, and the ready instances with all they have. Writes nothing.
-- KEYS[1] prefix
-- ARGV 1 requests of the line, and of each queue, at most; 2 msgpack map {instance = {epoch, cache version}}: caches the caller holds
-- returns {now, plans carried out, {request, its last fencing token ('' for none), ...}, {{instance, epoch, serves, profile, load, cache version, cache (nil: the caller
--   holds it), {queued request, ...}, {claimed request, ...}}, ...}}; no instances where nothing is in the line
--@include base
local most = ARGV[1] - 1
local line, seen, held = {}, {}, cmsgpack.unpack(ARGV[2])
for _, id in ipairs(redis.call('ZRANGE', p .. 'queue:line', 0, most)) do
  line[#line + 1] = id
  line[#line + 1] = try('HGET', p .. 'request:' .. id, 'token') or ''
end
for _, name in ipairs(#line > 0 and redis.call('ZRANGE', p .. 'instances', 0, -1) or {}) do
  local key = p .. 'instance:' .. name
  local status, epoch, serves, profile, load, version =
    unpack(try('HMGET', key, 'status', 'epoch', 'serves', 'profile', 'load', 'cache_version') or {})
  if status == 'ready' then
    local known = held[name]
    local cache = false
    if not (known and known[1] == epoch and known[2] == (version or '')) then cache = redis.call('HGET', key, 'cache') or '' end
    seen[#seen + 1] = {name, epoch, serves, profile, load, version or '', cache,
      redis.call('ZRANGE', p .. 'queue:' .. name, 0, most), redis.call('SMEMBERS', p .. 'claimed:' .. name)}
  end
end
return {now, tonumber(redis.call('GET', p .. 'plans') or 0), line, seen}
