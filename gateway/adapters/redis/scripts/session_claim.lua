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
-- ARGV[9] epoch by which the claimant holds the session, as it is here under that epoch; '' if it does not
-- ARGV[10] principal of the credentials that the client showed, missing if it showed none
-- ARGV[11..] fields and values that these credentials give
-- Result  {'refused', reason}; 'stale' if the caller must adopt the grid again
--         {'reclaimed', epoch, generation, owner before the claimant} if the claimant holds the session by ARGV[9], and no
--         credentials were shown: it knows the rest
--         {'claimed', previous owner, owner before it, {field, value, ...}}: all fields of the session, see keys.py
--
-- Invariant: epoch and generation rise by one exactly once per accepted attempt; a repeated attempt of the owner
-- answers as it did and changes neither. Credentials that have ended claim nothing, and others only for their own
-- principal; this holds for a repeated attempt too, as whoever repeats it may be somebody else.
-- Invariant of the sets: whoever is connected is among the owned, by its owner, and has no deadline.
-- Invariant of the seal: a session that is not there means nothing in a partition without it, which was emptied or has
-- gone back: it is lost and not ended, and its node writes it again once the grid is adopted.
-- Needs clock.lua and claim_refusal.lua.
if ARGV[10] then
  if ARGV[10] ~= stored[9] then
    return {'refused', 'unauthenticated'}
  end
elseif stored[10] and stored[10] ~= '' and tonumber(stored[10]) <= tonumber(ARGV[8]) then
  return {'refused', 'credentials_expired'}
end
local held = false
if attempt > tonumber(stored[5]) then
  if ARGV[10] then
    redis.call('HSET', KEYS[1], unpack(ARGV, 11))
  else
    held = owner == ARGV[3] and epoch == ARGV[9]
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
if owner ~= ARGV[3] then
  redis.call('ZREM', KEYS[2], owner .. ' ' .. ARGV[2])
end
if owner ~= ARGV[3] or stored[6] ~= '1' then
  redis.call('ZADD', KEYS[2], 0, ARGV[3] .. ' ' .. ARGV[2])
  redis.call('ZREM', KEYS[3], ARGV[2])
end
if held then
  return {'reclaimed', epoch, generation, before}
end
return {'claimed', previous, before, redis.call('HGETALL', KEYS[1])}
