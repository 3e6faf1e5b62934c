-- settle: a stream entry ('' for none) needs nothing more. Returns 1, or 0 where it was settled before.
local function settle(stream, entry)
  if entry == '' then return 0 end
  redis.call('XACK', p .. stream, 'coordinators', entry)
  return redis.call('XDEL', p .. stream, entry)
end
