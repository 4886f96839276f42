-- Change parts of a session.
--
-- KEYS[1] session  hash  see keys.py
-- KEYS[2] ended    zset  "<reason>:<short hash>" of ended sessions -> when to forget it (ms)
-- ARGV[1] owner that writes
-- ARGV[2] epoch of its claim
-- ARGV[3] short hash of the id
-- ARGV[4] new oldest accepted token generation, '' to leave it
-- ARGV[5..] fields and new values
-- Result  'ok', 'fenced', or 'gone' with a reason: {'gone', reason}
--
-- Invariant: only the stored owner with the stored epoch writes (P3); confirmed never falls.
local stored = redis.call('HMGET', KEYS[1], 'owner', 'epoch', 'confirmed', 'ended')
if not stored[1] then
  for _, reason in ipairs({'session_closed', 'session_expired', 'revoked'}) do
    if redis.call('ZSCORE', KEYS[2], reason .. ':' .. ARGV[3]) then
      return {'gone', reason}
    end
  end
  return {'gone', 'session_unknown'}
end
if stored[1] ~= ARGV[1] or stored[2] ~= ARGV[2] then
  return 'fenced'
end
if stored[4] then
  return {'gone', stored[4]}
end
if ARGV[4] ~= '' and tonumber(ARGV[4]) > tonumber(stored[3]) then
  redis.call('HSET', KEYS[1], 'confirmed', ARGV[4])
end
if #ARGV > 4 then
  redis.call('HSET', KEYS[1], unpack(ARGV, 5))
end
return 'ok'
