-- Write a new session.
--
-- KEYS[1] session    hash  see keys.py
-- KEYS[2] owned      zset  "<owner> <id>" of every connected session of the partition, all with score 0
-- KEYS[3] deadlines  zset  id -> end of its window (ms)
-- KEYS[4] ids        zset  id of every session of the partition, all with score 0
-- ARGV[1] id
-- ARGV[2] owner
-- ARGV[3] epoch
-- ARGV[4] '1' connected, '0' its window runs
-- ARGV[5] window (s)
-- ARGV[6..] further fields and values of the hash
-- Result  'ok', also if the same owner created it with the same epoch before; 'fenced' if somebody else has it
--
-- Invariant: a connected session is in owned and not in deadlines; a disconnected one the other way round. Both are in
-- ids.
local stored = redis.call('HMGET', KEYS[1], 'owner', 'epoch', 'ended')
if stored[1] then
  if stored[1] == ARGV[2] and stored[2] == ARGV[3] and not stored[3] then
    return 'ok'
  end
  return 'fenced'
end
redis.call(
  'HSET', KEYS[1], 'owner', ARGV[2], 'epoch', ARGV[3], 'connected', ARGV[4], 'window', ARGV[5], 'previous', ARGV[2],
  unpack(ARGV, 6)
)
redis.call('ZADD', KEYS[4], 0, ARGV[1])
if ARGV[4] == '1' then
  redis.call('ZADD', KEYS[2], 0, ARGV[2] .. ' ' .. ARGV[1])
else
  local time = redis.call('TIME')
  redis.call('ZADD', KEYS[3], time[1] * 1000 + math.floor(time[2] / 1000 + ARGV[5] * 1000), ARGV[1])
end
return 'ok'
