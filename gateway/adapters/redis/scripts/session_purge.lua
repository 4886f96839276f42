#!lua flags=allow-oom
-- Delete a session that is marked as ended and whose receipts are deleted; remember for a while why it ended.
--
-- KEYS[1] session    hash  see keys.py
-- KEYS[2] owned      zset  "<owner> <id>" of every connected session of the partition
-- KEYS[3] deadlines  zset  id -> end of its window (ms)
-- KEYS[4] ended      zset  "<reason>:<short hash>" of ended sessions -> when to forget it (ms)
-- KEYS[5] ids        zset  id of every session of the partition, all with score 0
-- KEYS[6] records    hash  of its transactions; transactions.lua
-- KEYS[7] operations hash  of its transactions
-- KEYS[8] overdue    zset  of the partition: session -> when its transactions are to be looked after (ms)
-- ARGV[1] id
-- ARGV[2] short hash of the id
-- ARGV[3] how long to remember the reason (ms)
-- ARGV[4] most reasons to remember
-- Result  1 if this call deleted it, 0 if another did
--
-- Invariant: exactly one caller gets 1. What is remembered is bounded, holds nothing of the session, and goes away by
-- itself. What is open of transactions is rolled back; of those whose commit has begun, whoever looks after the partition
-- finds what it needs to bring them to their end.
-- Needs clock.lua.
local stored = redis.call('HMGET', KEYS[1], 'owner', 'ended')
if not stored[2] then
  return 0
end
redis.call('DEL', KEYS[1])
redis.call('ZREM', KEYS[2], stored[1] .. ' ' .. ARGV[1])
redis.call('ZREM', KEYS[3], ARGV[1])
redis.call('ZREM', KEYS[5], ARGV[1])
redis.call('ZADD', KEYS[4], now + ARGV[3], stored[2] .. ':' .. ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[4], '-inf', now)
redis.call('ZREMRANGEBYRANK', KEYS[4], 0, -ARGV[4] - 1)
local finishing = false
for _, record in ipairs(redis.call('HGETALL', KEYS[6])) do
  finishing = finishing or string.find(record, '^[pcr] ') ~= nil
end
if not finishing then
  redis.call('DEL', KEYS[6], KEYS[7])
  redis.call('ZREM', KEYS[8], ARGV[1])
end
if redis.call('PTTL', KEYS[4]) < tonumber(ARGV[3]) then
  redis.call('PEXPIRE', KEYS[4], ARGV[3])
end
return 1
