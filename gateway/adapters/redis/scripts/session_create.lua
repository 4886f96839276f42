-- Write a new session.
--
-- KEYS[1] session    hash  see keys.py
-- KEYS[2] owned      zset  "<owner> <id>" of every connected session of the partition, all with score 0
-- KEYS[3] deadlines  zset  id -> end of its window (ms)
-- KEYS[4] ids        zset  id of every session of the partition, all with score 0
-- KEYS[5] opened  string  seal of the newest generation that was opened here
-- ARGV[1] seal of the generation that the caller has adopted
-- ARGV[2] id
-- ARGV[3] owner
-- ARGV[4] epoch
-- ARGV[5] '1' connected, '0' its window runs
-- ARGV[6] window (s)
-- ARGV[7] how many selections, n
-- ARGV[8..7+n] the selections, "+selector" or "-selector"
-- ARGV[8+n..] further fields and values of the hash
-- Result  'ok', also if the same owner created it with the same epoch before; 'fenced' if somebody else has it; 'stale' if
--         the caller must adopt the grid again
--
-- Invariant: a connected session is in owned and not in deadlines; a disconnected one the other way round. Both are in
-- ids. Nothing is written into a partition that was emptied, or has gone back, before it is adopted as such.
-- Needs clock.lua and selections.lua.
if redis.call('GET', KEYS[5]) ~= ARGV[1] then
  return 'stale'
end
local stored = redis.call('HMGET', KEYS[1], 'owner', 'epoch', 'ended')
if stored[1] then
  if stored[1] == ARGV[3] and stored[2] == ARGV[4] and not stored[3] then
    return 'ok'
  end
  return 'fenced'
end
redis.call(
  'HSET', KEYS[1], 'owner', ARGV[3], 'epoch', ARGV[4], 'connected', ARGV[5], 'window', ARGV[6], 'previous', ARGV[3],
  unpack(ARGV, 8 + ARGV[7])
)
put_entries(KEYS[1], ARGV, 8, 7 + ARGV[7])
redis.call('ZADD', KEYS[4], 0, ARGV[2])
if ARGV[5] == '1' then
  redis.call('ZADD', KEYS[2], 0, ARGV[3] .. ' ' .. ARGV[2])
else
  redis.call('ZADD', KEYS[3], now + math.floor(ARGV[6] * 1000), ARGV[2])
end
return 'ok'
