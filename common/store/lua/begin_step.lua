-- begin_step: a consistent look at one workflow: its state (unless the caller has this version) and its mail. Writes nothing.
-- KEYS[1] prefix
-- ARGV 1 workflow id, 2 version the caller holds (-1: none), 3 messages at most
-- returns {version (-1: no such running workflow), now, state fields or {}, {message, output or false, ...}, a word for these messages}
--@include base
--@include mail
local key = p .. 'workflow:' .. ARGV[1]
local version, status = unpack(redis.call('HMGET', key, 'version', 'status'))
if status ~= 'running' and not redis.call('ZSCORE', p .. 'live', ARGV[1]) then return {-1, now, {}, {}, ''} end
-- A commit names the version as the number it was read as: one that is written otherwise would never be met.
local is_met = string.format('%.0f', math.max(0, whole(version) or 0)) == version
if status ~= 'running' or not is_met then error('its status or its version is damaged') end
local fields = {}
if version ~= ARGV[2] then fields = redis.call('HGETALL', key) end
local messages, seen = mail(ARGV[1], ARGV[3])
local told = {}
for i, message in ipairs(messages) do
  told[2 * i - 1] = message
  local node = string.match(message, '^completed %S+ (%S+)')
  told[2 * i] = node and redis.call('HGET', key .. ':outputs', node) or false
end
return {tonumber(version), now, fields, told, seen}
