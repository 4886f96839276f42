#!lua flags=allow-oom
-- Begin to end a session (P7): from here on no claim succeeds, and any reaper can finish the work.
--
-- KEYS[1] session    hash  see keys.py
-- KEYS[2] owned      zset  "<owner> <id>" of every connected session of the partition
-- KEYS[3] deadlines  zset  id -> end of its window (ms)
-- KEYS[4] opened  string  seal of the newest generation that was opened here
-- ARGV[1] seal of the generation that the caller has adopted
-- ARGV[2] id
-- ARGV[3] owner that writes
-- ARGV[4] epoch of its claim
-- ARGV[5] reason
-- ARGV[6] how long a reaper leaves the rest to the caller (ms)
-- ARGV[7] kind of the end, for its wills
-- Result  {'marked', topic partitions that may hold receipts, window (s)[, wills as wills.lua has them]}, 'gone', 'fenced' or
--         'stale'
--
-- Invariant: a session marked as ended stays among the deadlines until session_purge has deleted it, because its
-- receipts live under other hash tags and cannot be deleted in this step.
-- Invariant of the seal: a session that is not there means nothing in a partition without it, which was emptied or has
-- gone back: it is lost and not ended, and its node writes it again once the grid is adopted.
-- Needs clock.lua and wills.lua.
local stored = redis.call('HMGET', KEYS[1], 'owner', 'epoch', 'ended', 'partitions', 'window')
if not stored[1] then
  if redis.call('GET', KEYS[4]) ~= ARGV[1] then
    return 'stale'
  end
  return 'gone'
end
if stored[1] ~= ARGV[3] or stored[2] ~= ARGV[4] then
  return 'fenced'
end
if not stored[3] then
  redis.call('HSET', KEYS[1], 'ended', ARGV[5], 'connected', '0')
  redis.call('ZREM', KEYS[2], stored[1] .. ' ' .. ARGV[2])
  redis.call('ZADD', KEYS[3], now + ARGV[6], ARGV[2])
end
return {'marked', stored[4], stored[5], left_wills(KEYS[1], ARGV[7], stored[3])}
