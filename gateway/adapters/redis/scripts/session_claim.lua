#!lua flags=allow-oom
-- Make a node the owner of a session, whoever owned it (P1, P3, P8).
--
-- KEYS[1] session    hash  see keys.py
-- KEYS[2] owned      zset  "<owner> <id>" of every connected session of the partition
-- KEYS[3] deadlines  zset  id -> end of its window (ms)
-- KEYS[4] ended      zset  "<reason>:<short hash>" of ended sessions -> when to forget it (ms)
-- ARGV[1] id
-- ARGV[2] claimant
-- ARGV[3] token generation that the client presented
-- ARGV[4] attempt
-- ARGV[5] short hash of the id
-- ARGV[6] term of the claimant's lease
-- ARGV[7] time by the claimant's clock, in seconds since 1970
-- ARGV[8] principal of the credentials that the client showed, missing if it showed none
-- ARGV[9..] fields and values that these credentials give
-- Result  {'refused', reason}
--         {'claimed', previous owner, principal, properties, selections, window, epoch, generation, confirmed, attempt,
--          partitions, roles, principal_properties, credential_expires, credential}; the last four are nil in a session
--          that an older node wrote
--
-- Invariant: epoch and generation rise by one exactly once per accepted attempt; a repeated attempt of the owner
-- answers as it did and changes neither. Credentials that have ended claim nothing, and others only for their own
-- principal.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local stored = redis.call(
  'HMGET', KEYS[1], 'owner', 'epoch', 'generation', 'confirmed', 'attempt', 'connected', 'previous', 'ended',
  'principal', 'properties', 'selections', 'window', 'partitions', 'credential_expires'
)
local owner = stored[1]
if not owner then
  for _, reason in ipairs({'session_closed', 'session_expired', 'revoked'}) do
    local until_ = redis.call('ZSCORE', KEYS[4], reason .. ':' .. ARGV[5])
    if until_ and tonumber(until_) > now then
      return {'refused', reason}
    end
  end
  return {'refused', 'session_unknown'}
end
if stored[8] then
  return {'refused', stored[8]}
end
if stored[6] == '0' then
  local deadline = redis.call('ZSCORE', KEYS[3], ARGV[1])
  if deadline and tonumber(deadline) <= now then
    return {'refused', 'session_expired'}
  end
end

local epoch, generation, confirmed = stored[2], stored[3], stored[4]
local previous = stored[7]
local presented, attempt = tonumber(ARGV[3]), tonumber(ARGV[4])
if presented < tonumber(confirmed) then
  return {'refused', 'token_superseded'}
end
if attempt < tonumber(stored[5]) or (attempt == tonumber(stored[5]) and owner ~= ARGV[2]) then
  return {'refused', 'stale_attempt'}
end
if attempt > tonumber(stored[5]) then
  if ARGV[8] then
    if ARGV[8] ~= stored[9] then
      return {'refused', 'unauthenticated'}
    end
    redis.call('HSET', KEYS[1], unpack(ARGV, 9))
  elseif stored[14] and stored[14] ~= '' and tonumber(stored[14]) <= tonumber(ARGV[7]) then
    return {'refused', 'credentials_expired'}
  end
  -- A generation above the stored one proves that the grid was rolled back: counting goes on from it.
  confirmed = string.format('%.0f', presented)
  generation = string.format('%.0f', math.max(presented, tonumber(generation)) + 1)
  epoch = string.format('%.0f', epoch + 1)
  previous = owner
end
redis.call(
  'HSET', KEYS[1], 'owner', ARGV[2], 'epoch', epoch, 'generation', generation, 'confirmed', confirmed,
  'attempt', ARGV[4], 'connected', '1', 'previous', previous, 'term', ARGV[6]
)
redis.call('ZREM', KEYS[2], owner .. ' ' .. ARGV[1])
redis.call('ZADD', KEYS[2], 0, ARGV[2] .. ' ' .. ARGV[1])
redis.call('ZREM', KEYS[3], ARGV[1])
local shown = redis.call('HMGET', KEYS[1], 'roles', 'principal_properties', 'credential_expires', 'credential')
return {
  'claimed', previous, stored[9], stored[10], stored[11], stored[12], epoch, generation, confirmed, ARGV[4], stored[13],
  unpack(shown)
}
