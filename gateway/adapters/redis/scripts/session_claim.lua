#!lua flags=allow-oom
-- Make a node the owner of a session, whoever owned it (P1, P3, P8).
--
-- KEYS[1] session    hash  see keys.py
-- KEYS[2] owned      zset  "<owner> <id>" of every connected session of the partition
-- KEYS[3] deadlines  zset  id -> end of its window (ms)
-- KEYS[4] ended      zset  "<reason>:<short hash>" of ended sessions -> when to forget it (ms)
-- KEYS[5] opened  string  seal of the newest generation that was opened here
-- ARGV[1] seal of the generation that the caller has adopted
-- ARGV[2] id
-- ARGV[3] claimant
-- ARGV[4] token generation that the client presented
-- ARGV[5] attempt
-- ARGV[6] short hash of the id
-- ARGV[7] term of the claimant's lease
-- ARGV[8] time by the claimant's clock, in seconds since 1970
-- ARGV[9] principal of the credentials that the client showed, missing if it showed none
-- ARGV[10..] fields and values that these credentials give
-- Result  {'refused', reason}; 'stale' if the caller must adopt the grid again
--         {'claimed', previous owner, owner before it, principal, properties, selections, window, epoch, generation,
--          confirmed, attempt, partitions, roles, principal_properties, credential_expires, credential, handlers}; the
--          last five are nil in a session that an older node wrote. Selections are {selector, sign and rank, ...} in no particular
--          order (selections.lua), or the text that an older node wrote
--
-- Invariant: epoch and generation rise by one exactly once per accepted attempt; a repeated attempt of the owner
-- answers as it did and changes neither. Credentials that have ended claim nothing, and others only for their own
-- principal.
-- Invariant of the seal: a session that is not there means nothing in a partition without it, which was emptied or has
-- gone back: it is lost and not ended, and its node writes it again once the grid is adopted.
-- Needs clock.lua and claim_refusal.lua.
if attempt > tonumber(stored[5]) then
  if ARGV[9] then
    if ARGV[9] ~= stored[9] then
      return {'refused', 'unauthenticated'}
    end
    redis.call('HSET', KEYS[1], unpack(ARGV, 10))
    local given = redis.call('HMGET', KEYS[1], 'roles', 'principal_properties', 'credential_expires', 'credential')
    stored[16], stored[17], stored[14], stored[18] = unpack(given)
  elseif stored[14] and stored[14] ~= '' and tonumber(stored[14]) <= tonumber(ARGV[8]) then
    return {'refused', 'credentials_expired'}
  end
  -- A generation above the stored one proves that the grid was rolled back: counting goes on from it.
  confirmed = string.format('%.0f', presented)
  generation = string.format('%.0f', math.max(presented, tonumber(generation)) + 1)
  epoch = string.format('%.0f', epoch + 1)
  before = previous
  previous = owner
end
redis.call(
  'HSET', KEYS[1], 'owner', ARGV[3], 'epoch', epoch, 'generation', generation, 'confirmed', confirmed,
  'attempt', ARGV[5], 'connected', '1', 'previous', previous, 'before', before, 'term', ARGV[7]
)
redis.call('ZREM', KEYS[2], owner .. ' ' .. ARGV[2])
redis.call('ZADD', KEYS[2], 0, ARGV[3] .. ' ' .. ARGV[2])
redis.call('ZREM', KEYS[3], ARGV[2])
local selections = stored[11]
if not selections then
  selections = {}
  local fields = redis.call('HGETALL', KEYS[1])
  for at = 1, #fields, 2 do
    if string.sub(fields[at], 1, 2) == 's:' then
      selections[#selections + 1] = string.sub(fields[at], 3)
      selections[#selections + 1] = fields[at + 1]
    end
  end
end
return {
  'claimed', previous, before, stored[9], stored[10], selections, stored[12], epoch, generation, confirmed, ARGV[5],
  stored[13], stored[16], stored[17], stored[14], stored[18], stored[19]
}
