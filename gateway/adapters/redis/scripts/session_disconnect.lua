#!lua flags=allow-oom
-- Start a session's window.
--
-- KEYS[1] session    hash  see keys.py
-- KEYS[2] owned      zset  "<owner> <id>" of every connected session of the partition
-- KEYS[3] deadlines  zset  id -> end of its window (ms)
-- KEYS[4] ended      zset  "<reason>:<short hash>" of ended sessions -> when to forget it (ms)
-- KEYS[5] opened  string  seal of the newest generation that was opened here
-- ARGV[1] seal of the generation that the caller has adopted
-- ARGV[2] id
-- ARGV[3] owner that writes
-- ARGV[4] epoch of its claim
-- ARGV[5] short hash of the id
-- Result  'ok', 'fenced', {'gone', reason}, or 'stale': the caller must adopt the grid again
--
-- Invariant: asking twice does not lengthen the window.
-- Needs clock.lua and session_absent.lua.
local stored = redis.call('HMGET', KEYS[1], 'owner', 'epoch', 'connected', 'window', 'ended')
if not stored[1] then
  return absent(KEYS[4], ARGV[5], KEYS[5], ARGV[1])
end
if stored[1] ~= ARGV[3] or stored[2] ~= ARGV[4] then
  return 'fenced'
end
if stored[5] then
  return {'gone', stored[5]}
end
if stored[3] == '1' then
  redis.call('HSET', KEYS[1], 'connected', '0')
  redis.call('ZREM', KEYS[2], stored[1] .. ' ' .. ARGV[2])
  redis.call('ZADD', KEYS[3], now + math.floor(stored[4] * 1000), ARGV[2])
end
return 'ok'
