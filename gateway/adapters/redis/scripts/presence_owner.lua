-- Precedes those steps of presence that the owner of a session asks for.
--
-- KEYS[9]  consuming hash  of the session in this partition: line break -> highest epoch that was here, line break and
--                          tree -> ''; its end reads it, so that nothing of the session stays
-- KEYS[10] receipts  list  of the session in this partition; topic_publish.lua
-- KEYS[11] closed    zset  short hashes of ended sessions -> when to forget them (ms)
-- ARGV[7] session
-- ARGV[8] epoch of its owner
-- ARGV[9] short hash of its id
--
-- Invariant: an owner that another one has followed changes nothing any more (P3), and a session that has ended is no
-- member again.
local session, epoch, hash = unpack(ARGV, 7, 9)

local function is_fenced()
  local last = redis.call('LINDEX', KEYS[10], -1)
  if last then
    if tonumber(string.match(last, '^(%d+) ')) > tonumber(epoch) then
      return true
    end
  elseif redis.call('ZSCORE', KEYS[11], hash) then
    return true
  end
  local seen = redis.call('HGET', KEYS[9], '\n')
  if seen and tonumber(seen) > tonumber(epoch) then
    return true
  end
  if seen ~= epoch then
    redis.call('HSET', KEYS[9], '\n', epoch)
  end
  return false
end
