-- Precedes those steps of presence that the owner of a session asks for: their last three keys and arguments.
--
-- KEYS[-3] consuming  hash  of the session in this partition: line break -> highest epoch that was here, line break and
--                           tree -> ''; its end reads it, so that nothing of the session stays
-- KEYS[-2] receipts   list  of the session in this partition; topic_publish.lua
-- KEYS[-1] closed     zset  short hashes of ended sessions -> when to forget them (ms)
-- ARGV[-3] session
-- ARGV[-2] epoch of its owner
-- ARGV[-1] short hash of its id
--
-- Invariant: an owner that another one has followed changes nothing any more (P3), and a session that has ended is no
-- member again.
local OWN, RECEIPTS, CLOSED = unpack(KEYS, #KEYS - 2)
local session, epoch, hash = unpack(ARGV, #ARGV - 2)

local function is_fenced()
  local last = redis.call('LINDEX', RECEIPTS, -1)
  if last then
    if tonumber(string.match(last, '^(%d+) ')) > tonumber(epoch) then
      return true
    end
  elseif redis.call('ZSCORE', CLOSED, hash) then
    return true
  end
  local seen = redis.call('HGET', OWN, '\n')
  if seen and tonumber(seen) > tonumber(epoch) then
    return true
  end
  if seen ~= epoch then
    redis.call('HSET', OWN, '\n', epoch)
  end
  return false
end
