#!lua flags=allow-oom
-- Write a session that its node serves into a grid that may have lost or forgotten it (P10).
--
-- KEYS[1] session    hash  see keys.py
-- KEYS[2] owned      zset  "<owner> <id>" of every connected session of the partition
-- KEYS[3] deadlines  zset  id -> end of its window (ms)
-- KEYS[4] ended      zset  "<reason>:<short hash>" of ended sessions -> when to forget it (ms)
-- KEYS[5] ids        zset  id of every session of the partition, all with score 0
-- KEYS[6] opened  string  seal of the newest generation that was opened here
-- ARGV[1] seal of the generation that the caller has adopted
-- ARGV[2] id
-- ARGV[3] owner
-- ARGV[4] epoch
-- ARGV[5] '1' connected, '0' its window runs
-- ARGV[6] window (s)
-- ARGV[7] short hash of the id
-- ARGV[8] '1' write it even if the grid does not hold it, '0' do not
-- ARGV[9] attempt of the last resume
-- ARGV[10] how many selections, n
-- ARGV[11..10+n] the selections, "+selector" or "-selector"
-- ARGV[11+n..] further fields and values of the hash, the attempt among them
-- Result  'written', 'fenced', 'gone', or 'stale': the caller must adopt the grid again
--
-- Invariant: a later attempt, a higher epoch, or the same epoch of another owner, is right against the caller; a
-- session that is known to have ended does not rise again. Attempts count too because a node that is cut off from the
-- grid serves its clients without it: each time its epoch grows, and its client may still have gone elsewhere last.
-- Nothing is written into a partition that was emptied, or has gone back, before it is adopted as such.
-- Needs clock.lua and selections.lua. What is restored is a session that goes on: it must not be lost because Redis is full.
if redis.call('GET', KEYS[6]) ~= ARGV[1] then
  return 'stale'
end
local stored = redis.call('HMGET', KEYS[1], 'owner', 'epoch', 'ended', 'attempt')
if not stored[1] then
  local ended = redis.call('ZSCORE', KEYS[4], 'session_closed:' .. ARGV[7])
    or redis.call('ZSCORE', KEYS[4], 'session_expired:' .. ARGV[7])
    or redis.call('ZSCORE', KEYS[4], 'revoked:' .. ARGV[7])
  if ended or ARGV[8] ~= '1' then
    return 'gone'
  end
else
  local epoch = tonumber(stored[2])
  local overtaken = tonumber(stored[4]) > tonumber(ARGV[9])
  if overtaken or epoch > tonumber(ARGV[4]) or (epoch == tonumber(ARGV[4]) and stored[1] ~= ARGV[3]) then
    return 'fenced'
  end
  if stored[3] then
    return 'gone'
  end
  redis.call('DEL', KEYS[1])
  redis.call('ZREM', KEYS[2], stored[1] .. ' ' .. ARGV[2])
end
redis.call(
  'HSET', KEYS[1], 'owner', ARGV[3], 'epoch', ARGV[4], 'connected', ARGV[5], 'window', ARGV[6], 'previous', ARGV[3],
  unpack(ARGV, 11 + ARGV[10])
)
put_entries(KEYS[1], ARGV, 11, 10 + ARGV[10])
redis.call('ZADD', KEYS[5], 0, ARGV[2])
if ARGV[5] == '1' then
  redis.call('ZADD', KEYS[2], 0, ARGV[3] .. ' ' .. ARGV[2])
  redis.call('ZREM', KEYS[3], ARGV[2])
else
  redis.call('ZADD', KEYS[3], now + math.floor(ARGV[6] * 1000), ARGV[2])
end
return 'written'
