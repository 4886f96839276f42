#!lua flags=allow-oom
-- Begin to end a session (P7): from here on no claim succeeds, and any reaper can finish the work.
--
-- KEYS[1] session    hash  see keys.py
-- KEYS[2] owned      zset  "<owner> <id>" of every connected session of the partition
-- KEYS[3] deadlines  zset  id -> end of its window (ms)
-- ARGV[1] id
-- ARGV[2] owner that writes
-- ARGV[3] epoch of its claim
-- ARGV[4] reason
-- ARGV[5] how long a reaper leaves the rest to the caller (ms)
-- Result  {'marked', topic partitions that may hold receipts, window (s)}, 'gone' or 'fenced'
--
-- Invariant: a session marked as ended stays among the deadlines until session_purge has deleted it, because its
-- receipts live under other hash tags and cannot be deleted in this step.
local stored = redis.call('HMGET', KEYS[1], 'owner', 'epoch', 'ended', 'partitions', 'window')
if not stored[1] then
  return 'gone'
end
if stored[1] ~= ARGV[2] or stored[2] ~= ARGV[3] then
  return 'fenced'
end
if not stored[3] then
  local time = redis.call('TIME')
  redis.call('HSET', KEYS[1], 'ended', ARGV[4], 'connected', '0')
  redis.call('ZREM', KEYS[2], stored[1] .. ' ' .. ARGV[1])
  redis.call('ZADD', KEYS[3], time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[5], ARGV[1])
end
return {'marked', stored[4], stored[5]}
