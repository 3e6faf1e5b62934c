-- settle: a stream entry ('' for none) needs nothing more.
local function settle(stream, entry)
  if entry == '' then return end
  redis.call('XACK', p .. stream, 'coordinators', entry)
  redis.call('XDEL', p .. stream, entry)
end
