#!lua flags=allow-oom
-- Start a session's window.
--
-- KEYS[1] session    hash  see keys.py
-- KEYS[2] owned      zset  "<owner> <id>" of every connected session of the partition
-- KEYS[3] deadlines  zset  id -> end of its window (ms)
-- KEYS[4] ended      zset  "<reason>:<short hash>" of ended sessions -> when to forget it (ms)
-- ARGV[1] id
-- ARGV[2] owner that writes
-- ARGV[3] epoch of its claim
-- ARGV[4] short hash of the id
-- Result  'ok', 'fenced', or {'gone', reason}
--
-- Invariant: asking twice does not lengthen the window.
local stored = redis.call('HMGET', KEYS[1], 'owner', 'epoch', 'connected', 'window', 'ended')
if not stored[1] then
  for _, reason in ipairs({'session_closed', 'session_expired', 'revoked'}) do
    if redis.call('ZSCORE', KEYS[4], reason .. ':' .. ARGV[4]) then
      return {'gone', reason}
    end
  end
  return {'gone', 'session_unknown'}
end
if stored[1] ~= ARGV[2] or stored[2] ~= ARGV[3] then
  return 'fenced'
end
if stored[5] then
  return {'gone', stored[5]}
end
if stored[3] == '1' then
  local time = redis.call('TIME')
  redis.call('HSET', KEYS[1], 'connected', '0')
  redis.call('ZREM', KEYS[2], stored[1] .. ' ' .. ARGV[1])
  redis.call('ZADD', KEYS[3], time[1] * 1000 + math.floor(time[2] / 1000 + stored[4] * 1000), ARGV[1])
end
return 'ok'
