#!lua flags=allow-oom
-- Begin the window of one disconnected session of an expired node anew: it may have left later than the grid knows.
--
-- KEYS[1] session    hash  see keys.py
-- KEYS[2] owned      zset  "<owner> <id>" of every connected session of the partition
-- KEYS[3] deadlines  zset  id -> end of its window (ms)
-- ARGV[1] id
-- ARGV[2] expired node
-- ARGV[3] term of its expired lease
-- Result  1 if its window is longer than before; 0 if it stays as it was, or if it is none of the expired node's any
--         more: connected, claimed, ended, or written under a later lease, as the node has come back
--
-- Invariant: no window becomes shorter. Asked twice, it is longer by the time between.
-- Needs clock.lua.
local stored = redis.pcall('HMGET', KEYS[1], 'owner', 'connected', 'window', 'term', 'ended')
if stored.err or stored[1] ~= ARGV[2] or stored[2] ~= '0' or stored[5] then
  return 0
end
local window = tonumber(stored[3])
if not window or (tonumber(stored[4]) or 0) > tonumber(ARGV[3]) then
  return 0
end
return redis.call('ZADD', KEYS[3], 'XX', 'GT', 'CH', now + math.floor(window * 1000), ARGV[1])
