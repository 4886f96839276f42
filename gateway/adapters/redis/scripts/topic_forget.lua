#!lua flags=allow-oom
-- Delete the publish receipts of an ended session in one topic partition, and fence what may still be under way.
--
-- KEYS[1] receipts  list  of the session in this partition
-- KEYS[2] closed    zset  short hashes of ended sessions that published here -> when to forget them (ms)
-- KEYS[3] consuming hash  of the session in this partition: queue -> ''; queue_leave.lua
-- ARGV[1] short hash of the session's id
-- ARGV[2] how long to remember it (ms)
-- ARGV[3] most to remember
-- ARGV[4] how long the record outlives what is in it (ms), as its own end goes by the clock of Redis, which may be set
-- Result  the queues from which it consumes, each of which it has to leave yet
--
-- Invariant: a publish of the session that arrives later finds either its receipts or its hash here, so that it can
-- neither run again nor leave receipts behind. The same holds for sends and
-- consumers. The record is bounded and goes away by itself.
-- Needs clock.lua.
redis.call('DEL', KEYS[1])
redis.call('ZADD', KEYS[2], now + ARGV[2], ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
redis.call('ZREMRANGEBYRANK', KEYS[2], 0, -ARGV[3] - 1)
local life = ARGV[2] + ARGV[4]
if redis.call('PTTL', KEYS[2]) < life then
  redis.call('PEXPIRE', KEYS[2], life)
end
return redis.call('HKEYS', KEYS[3])
