-- commit_step: one step of one workflow takes effect whole, or not at all.
-- KEYS[1] prefix
-- ARGV 1 workflow id, 2 completion entry id ('' for none), 3 version the step was computed from, 4 messages it handled, 5 step:
--   msgpack map {fields = {name, value, ...}, pushes = {{id, node, instance, offset_ms, load_ms, {field, value, ...}, tenant ('' for none),
--   tokens it is charged, lane ('' unless the instance is the line), grounds of its key}, ...}, delays = {{node, due_in_ms}, ...},
--   drops = {request id, ...}, rescores = {{request id, offset_ms, {field, value, ...}}, ...}, recalls = {node, ...},
--   events = {type, field, data, ...}, keep_events, result (nil while running), status, ttl_ms, trace (nil for none), keep_traces,
--   keep_traces_ms}, 6 call id, 7 the word for the messages it handled, as begin_step gave it
-- returns {1, bounced, version it has now} done; {1, 1, version} done already by this very call; {0, 0} the state has moved on, or a failover
--   has lost what it answers (nothing written); {-1, 0} no such running workflow (entry settled)
--   bounced: pushes to an instance that is no longer ready; their workflow is told at once and routes them anew
--@include base
--@include mail
--@include post
--@include queue
--@include rescore
--@include tenant
--@include limits
--@include pace
--@include uncount
--@include definition
--@include finish
--@include settle
local key = p .. 'workflow:' .. ARGV[1]
local version, status, done = unpack(redis.call('HMGET', key, 'version', 'status', 'step'))
if done == ARGV[6] then return {1, 1, tonumber(version)} end
local running = status == 'running'
local _, seen = mail(ARGV[1], ARGV[4])
if running and (version ~= ARGV[3] or seen ~= ARGV[7]) then return {0, 0} end
if not running then settle('completions', ARGV[2]) return {-1, 0} end
local bounced, rate = 0, nil
local step = cmsgpack.unpack(ARGV[5])
-- A time, not a count: whoever remembers a step that a failover has lost never takes the one made instead for it.
version = math.max(version + 1, now)
redis.call('HSET', key, 'version', string.format('%.0f', version))
for i = 1, #step.fields, 2 do redis.call('HSET', key, step.fields[i], step.fields[i + 1]) end
for _, id in ipairs(step.drops) do detach(id) discharge(id, '') end
for _, rescored in ipairs(step.rescores) do rescore(unpack(rescored)) end
if #step.rescores > 0 then wake_line() end
for _, push in ipairs(step.pushes) do
  local id, node, instance, offset_ms, load_ms, fields, tenant, tokens, lane, grounds = unpack(push)
  local record = p .. 'request:' .. id
  local enqueued_at, first_offset_ms, before, its = unpack(redis.call('HMGET', record, 'enqueued_at', 'offset_ms', 'lane', 'grounds'))
  enqueued_at = whole(enqueued_at) or now
  -- The line keeps the first key it gave.
  if lane ~= '' and (before or '') ~= '' and whole(first_offset_ms) then offset_ms, grounds = first_offset_ms, its or grounds end
  redis.call('HSET', record, 'workflow', ARGV[1], 'node', node, 'instance', instance, 'load_ms', load_ms, 'lane', lane,
    'enqueued_at', string.format('%.0f', enqueued_at), 'offset_ms', offset_ms, 'grounds', grounds, unpack(fields))
  if tenant ~= '' and rate == nil then rate = tenant_limit('tokens_per_s', tenant) or false end -- one workflow, one tenant
  charge(id, tenant, tokens, rate)
  if is_ready(instance) then
    enqueue(id, instance, enqueued_at, offset_ms, load_ms)
  else
    bounced = bounced + 1
    redis.call('HDEL', record, 'instance')
    redis.call('HSET', record, 'load_ms', 0)
    post(ARGV[1], 'evacuated ' .. id .. ' ' .. node)
  end
end
for _, node in ipairs(step.recalls) do redis.call('ZREM', p .. 'delayed', ARGV[1] .. ' ' .. node) end
for _, delay in ipairs(step.delays) do
  redis.call('ZADD', p .. 'delayed', now + delay[2], ARGV[1] .. ' ' .. delay[1])
end
for i = 1, #step.events, 3 do
  redis.call('XADD', key .. ':events', 'MAXLEN', '~', step.keep_events, '*', 'type', step.events[i], step.events[i + 1], step.events[i + 2])
end
redis.call('LTRIM', key .. ':mailbox', ARGV[4], -1)
redis.call('HSET', key, 'step', ARGV[6])
settle('completions', ARGV[2])
if step.result then
  finish(ARGV[1], step.status, step.result, step.ttl_ms)
  if step.trace then
    redis.call('XADD', p .. 'traces', 'MAXLEN', '~', step.keep_traces, '*', 'record', step.trace)
    redis.call('PEXPIRE', p .. 'traces', step.keep_traces_ms)
  end
elseif redis.call('EXISTS', key .. ':mailbox') == 1 then
  redis.call('XADD', p .. 'completions', '*', 'workflow', ARGV[1])
else
  redis.call('HDEL', key, 'rung')
end
return {1, bounced, version}
