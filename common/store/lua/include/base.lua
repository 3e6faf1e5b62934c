-- Shared by every operation. One clock: Redis's own. `p` is the namespace prefix, "{hexgen:NS}:".
local p = KEYS[1]
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

-- try: what a command replies; nil where the key or field holds something it cannot work with. Other errors (missing rights, a
-- server in trouble) are no fault of the data: the same command again raises them in the server's own words.
local function try(...)
  local reply = redis.pcall(...)
  if type(reply) ~= 'table' or not reply.err then return reply end
  for _, fault in ipairs({'^%-?WRONGTYPE', 'is not an integer', 'would overflow'}) do
    if string.find(reply.err, fault) then return nil end
  end
  return redis.call(...)
end

-- whole: the integer that a text tells, if it tells one exactly; else nil.
local function whole(text) return tonumber(#(text or '') < 16 and string.match(text or '', '^%-?%d+$') or nil) end
