#!lua flags=allow-oom
-- Make another node the owner of a session that has no client, while its window runs on.
--
-- KEYS[1] session    hash  see keys.py
-- KEYS[2] owned      zset  "<owner> <id>" of every connected session of the partition
-- KEYS[3] deadlines  zset  id -> end of its window (ms)
-- KEYS[4] ended      zset  "<reason>:<short hash>" of ended sessions -> when to forget it (ms)
-- KEYS[5] opened  string  seal of the newest generation that was opened here
-- ARGV[1] seal of the generation that the caller has adopted
-- ARGV[2] id
-- ARGV[3] owner that gives it up
-- ARGV[4] epoch of its claim
-- ARGV[5] the next owner
-- ARGV[6] short hash of the id
-- ARGV[7] term of the next owner's lease
-- Result  'ok', 'fenced', {'gone', reason}, or 'stale': the caller must adopt the grid again
--
-- Invariant: the epoch rises by one; tokens, attempts and the end of the window stay as they are. Asking twice answers the
-- same and changes nothing more. A session with a client, or whose client has claimed it meanwhile, is left alone.
-- Needs clock.lua and session_absent.lua.
local stored = redis.call('HMGET', KEYS[1], 'owner', 'epoch', 'connected', 'previous', 'ended')
if not stored[1] then
  return absent(KEYS[4], ARGV[6], KEYS[5], ARGV[1])
end
if stored[5] then
  return {'gone', stored[5]}
end
local deadline = redis.call('ZSCORE', KEYS[3], ARGV[2])
if deadline and tonumber(deadline) <= now then
  return {'gone', 'session_expired'}
end
local epoch = string.format('%.0f', ARGV[4] + 1)
if stored[3] == '0' and stored[1] == ARGV[5] and stored[2] == epoch and stored[4] == ARGV[3] then
  return 'ok'
end
if stored[1] ~= ARGV[3] or stored[2] ~= ARGV[4] or stored[3] == '1' then
  return 'fenced'
end
redis.call(
  'HSET', KEYS[1], 'owner', ARGV[5], 'epoch', epoch, 'previous', ARGV[3], 'before', stored[4] or ARGV[3], 'term', ARGV[7]
)
return 'ok'
