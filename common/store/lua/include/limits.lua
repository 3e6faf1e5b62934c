-- limit: what is set for the whole cell, else what the caller gives. tenant_limit: what is set for this tenant, else for any; or nil.
-- What is no number counts as not set.
local function limit(name, default) return tonumber(try('HGET', p .. 'limits', name) or nil) or tonumber(default) end
local function tenant_limit(name, tenant)
  local own, any = unpack(try('HMGET', p .. 'limits', name .. ':' .. tenant, 'tenant_' .. name) or {})
  return tonumber(own or nil) or tonumber(any or nil)
end
