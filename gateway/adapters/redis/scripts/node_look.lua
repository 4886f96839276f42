#!lua flags=allow-oom,no-writes
-- Look at leases.
--
-- KEYS[1] leases  zset  node -> end of its lease (ms)
-- ARGV[1..] nodes
-- Result  of each how long its lease lasts still (ms), zero or less if it has ended; '' of one that has none
--
-- Invariant: all of them are of one moment.
-- Needs clock.lua.
local left = {}
for at = 1, #ARGV do
  local ends = redis.call('ZSCORE', KEYS[1], ARGV[at])
  left[at] = ends and tonumber(ends) - now or ''
end
return left
