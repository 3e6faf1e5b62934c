-- Shared by every operation. One clock: Redis's own. `p` is the namespace prefix, "{hexgen:NS}:".
local p = KEYS[1]
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
