#!lua flags=allow-oom
-- Begin to end one session whose window may be over, or take over the end of one that its ender did not finish.
--
-- KEYS[1] session    hash  see keys.py
-- KEYS[2] owned      zset  "<owner> <id>" of every connected session of the partition
-- KEYS[3] deadlines  zset  id -> end of its window (ms)
-- ARGV[1] id
-- ARGV[2] how long another reaper leaves the rest to the caller (ms)
-- ARGV[3] nothing is spared whose deadline is not later than this (ms)
-- ARGV[4..] nodes, each followed by up to when it has told that all that happened to its sessions is in the grid (ms)
-- Result  'foreign' if what is there cannot have come from the gateway: it is off the clock; else {'marked', topic
--         partitions that may hold receipts, window (s), owner, reason, epoch, principal[, wills as wills.lua has them]},
--         'spared' if its owner may know of a later deadline, or 'alive' if there is nothing to do
--
-- Invariant: the deadline is checked in the same step that marks, so a session claimed in time is never ended.
-- Needs clock.lua and wills.lua.
local deadline = redis.call('ZSCORE', KEYS[3], ARGV[1])
local stored = redis.pcall('HMGET', KEYS[1], 'owner', 'ended', 'partitions', 'window', 'connected', 'epoch', 'principal')
if not deadline or tonumber(deadline) > now or not sure then
  return 'alive'
end
local readable = not stored.err
  and (not stored[1] or (tonumber(stored[4]) and tonumber(stored[6]) and string.find(stored[1], '.:')))
if not readable then
  redis.call('ZREM', KEYS[3], ARGV[1])
  return 'foreign'
end
if not stored[1] or (stored[5] == '1' and not stored[2]) then
  redis.call('ZREM', KEYS[3], ARGV[1])
  return 'alive'
end
local reason = stored[2]
if not reason then
  if tonumber(deadline) > tonumber(ARGV[3]) then
    for at = 4, #ARGV, 2 do
      if ARGV[at] == stored[1] and tonumber(ARGV[at + 1]) < tonumber(deadline) then
        return 'spared'
      end
    end
  end
  reason = 'session_expired'
  redis.call('HSET', KEYS[1], 'ended', reason)
  redis.call('ZREM', KEYS[2], stored[1] .. ' ' .. ARGV[1])
end
redis.call('ZADD', KEYS[3], now + ARGV[2], ARGV[1])
return {'marked', stored[3], stored[4], stored[1], reason, stored[6], stored[7] or '', left_wills(KEYS[1], 'expired', stored[2])}
