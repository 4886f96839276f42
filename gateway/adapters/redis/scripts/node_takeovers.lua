#!lua flags=allow-oom,no-writes
-- List the takeovers that are under way, and the nodes of which something is to be cleaned up.
--
-- KEYS[1] takeovers  hash  expired node -> see takeovers.lua
-- Result  {time of the grid (ms), node, its entry, ...}
--
-- Invariant: all of them are of one moment.
-- Needs clock.lua.
local found = redis.call('HGETALL', KEYS[1])
table.insert(found, 1, now)
return found
