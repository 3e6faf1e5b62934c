-- forget_ended: workflows are no longer counted among their tenants' that run no more: a coordinator of an older version, which
-- knows of no such count, has ended them. A few are looked at, taken by chance; none while no more are counted than run.
-- KEYS[1] prefix
-- ARGV 1 how many are looked at
-- returns how many were forgotten
--@include base
--@include uncount
local counted, forgotten = p .. 'workflow_tenants', 0
if redis.call('HLEN', counted) <= redis.call('ZCARD', p .. 'live') then return 0 end
for _, workflow in ipairs(redis.call('HRANDFIELD', counted, ARGV[1])) do
  if not redis.call('ZSCORE', p .. 'live', workflow) then
    uncount(workflow)
    forgotten = forgotten + 1
  end
end
return forgotten
