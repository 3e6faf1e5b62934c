-- unseated: why this incarnation may not go on, if so: 'epoch' (a later one has taken over) or 'gone' (no such instance is
-- registered: it was forgotten, or the cell has lost its data, or this registration by a failover). Else nil and the instance's status.
-- '' has no epoch to lose.
local function unseated(instance, epoch)
  if epoch == '' then return nil, '' end
  local found, status = unpack(redis.call('HMGET', p .. 'instance:' .. instance, 'epoch', 'status'))
  if found and found ~= epoch then return (whole(found) or 0) > tonumber(epoch) and 'epoch' or 'gone' end
  if not found or status == 'gone' then return 'gone' end
  return nil, status
end
