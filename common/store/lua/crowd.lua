-- crowd: whether the cell as a whole has no room for what is submitted. Writes nothing.
-- KEYS[1] prefix
-- ARGV limits that count where none are set: 1 submissions, 2 workflows, 3 queued
-- returns {} while there is room; else {limit, how much is taken, what it is set to, ms in which there may be room}
--@include base
--@include limits
--@include pace
--@include admission
return full_cell(ARGV[1], ARGV[2], ARGV[3]) or full_memory() or {}
