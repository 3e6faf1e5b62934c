-- rights: which commands the user of this connection may not run. Runs none of them and writes nothing.
-- KEYS[1] prefix
-- ARGV commands, each as msgpack list {word, argument, ...}
-- returns {number in ARGV, ...} of those refused; {-1} where the server cannot tell, as before 7.0
if not redis.acl_check_cmd then return {-1} end
local refused = {}
for i, command in ipairs(ARGV) do
  local known, may = pcall(redis.acl_check_cmd, unpack(cmsgpack.unpack(command)))
  if not (known and may) then refused[#refused + 1] = i end
end
return refused
