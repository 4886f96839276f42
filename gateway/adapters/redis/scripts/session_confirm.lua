#!lua flags=allow-oom
-- Note that the client of a session has proved to hold a token: older ones are refused from now on (P8).
--
-- What session_change.lua does with the same, as one client in each comeback has it done: no list of selections, no reason.
--
-- KEYS[1] session  hash  see keys.py
-- KEYS[2] opened   string  seal of the newest generation that was opened here
-- ARGV[1] seal of the generation that the caller has adopted
-- ARGV[2] owner that writes
-- ARGV[3] epoch of its claim
-- ARGV[4] token generation that is proved
-- Result  1 if it was written, or a newer one is noted; 0 if not: session_change.lua tells why; 'stale': the caller must
--         adopt the grid again
--
-- Invariant: only the stored owner with the stored epoch writes (P3); confirmed never falls.
local stored = redis.call('HMGET', KEYS[1], 'owner', 'epoch', 'confirmed', 'ended')
if not stored[1] then
  return redis.call('GET', KEYS[2]) == ARGV[1] and 0 or 'stale'
end
if stored[1] ~= ARGV[2] or stored[2] ~= ARGV[3] or stored[4] then
  return 0
end
if tonumber(ARGV[4]) > tonumber(stored[3]) then
  redis.call('HSET', KEYS[1], 'confirmed', ARGV[4])
end
return 1
