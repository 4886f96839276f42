-- Write a session that its node serves into a grid that may have lost or forgotten it (P10).
--
-- KEYS[1] session    hash  see keys.py
-- KEYS[2] owned      zset  "<owner> <id>" of every connected session of the partition
-- KEYS[3] deadlines  zset  id -> end of its window (ms)
-- KEYS[4] ended      zset  "<reason>:<short hash>" of ended sessions -> when to forget it (ms)
-- KEYS[5] ids        zset  id of every session of the partition, all with score 0
-- ARGV[1] id
-- ARGV[2] owner
-- ARGV[3] epoch
-- ARGV[4] '1' connected, '0' its window runs
-- ARGV[5] window (s)
-- ARGV[6] short hash of the id
-- ARGV[7] '1' write it even if the grid does not hold it, '0' do not
-- ARGV[8] attempt of the last resume
-- ARGV[9..] further fields and values of the hash, the attempt among them
-- Result  'written', 'fenced' or 'gone'
--
-- Invariant: a later attempt, a higher epoch, or the same epoch of another owner, is right against the caller; a
-- session that is known to have ended does not rise again. Attempts count too because a node that is cut off from the
-- grid serves its clients without it: each time its epoch grows, and its client may still have gone elsewhere last.
local stored = redis.call('HMGET', KEYS[1], 'owner', 'epoch', 'ended', 'attempt')
if not stored[1] then
  local ended = redis.call('ZSCORE', KEYS[4], 'session_closed:' .. ARGV[6])
    or redis.call('ZSCORE', KEYS[4], 'session_expired:' .. ARGV[6])
    or redis.call('ZSCORE', KEYS[4], 'revoked:' .. ARGV[6])
  if ended or ARGV[7] ~= '1' then
    return 'gone'
  end
else
  local epoch = tonumber(stored[2])
  local overtaken = tonumber(stored[4]) > tonumber(ARGV[8])
  if overtaken or epoch > tonumber(ARGV[3]) or (epoch == tonumber(ARGV[3]) and stored[1] ~= ARGV[2]) then
    return 'fenced'
  end
  if stored[3] then
    return 'gone'
  end
  redis.call('DEL', KEYS[1])
  redis.call('ZREM', KEYS[2], stored[1] .. ' ' .. ARGV[1])
end
redis.call(
  'HSET', KEYS[1], 'owner', ARGV[2], 'epoch', ARGV[3], 'connected', ARGV[4], 'window', ARGV[5], 'previous', ARGV[2],
  unpack(ARGV, 9)
)
redis.call('ZADD', KEYS[5], 0, ARGV[1])
if ARGV[4] == '1' then
  redis.call('ZADD', KEYS[2], 0, ARGV[2] .. ' ' .. ARGV[1])
  redis.call('ZREM', KEYS[3], ARGV[1])
else
  local time = redis.call('TIME')
  redis.call('ZADD', KEYS[3], time[1] * 1000 + math.floor(time[2] / 1000 + ARGV[5] * 1000), ARGV[1])
end
return 'written'
