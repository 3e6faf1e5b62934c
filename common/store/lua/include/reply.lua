-- reply: what became of a submission, under its entry's id, kept for so long. A new stream is given 4 KB; a copy takes no more than its
-- one event does, and there may be very many. Begins with a removal, of nothing: after it a full Redis takes the writes too.
local function reply(entry, kind, field, event, keep_ms)
  local stream, draft = p .. 'workflow:' .. entry .. ':events', p .. 'reply'
  redis.call('DEL', draft)
  redis.call('XADD', draft, '*', 'type', kind, field, event)
  redis.call('PEXPIRE', draft, keep_ms) -- the copy has it too; and what a missing right leaves of it goes
  redis.call('COPY', draft, stream, 'REPLACE')
  redis.call('DEL', draft)
end
