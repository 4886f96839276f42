#!lua flags=allow-oom
-- Declare that every session of an expired node is on the clock.
--
-- KEYS[1] leases     zset    node -> end of its lease (ms)
-- KEYS[2] members    hash    node -> "<length of its lease in ms> <term>"
-- KEYS[3] takeovers  hash    expired node -> "<end of the right in ms> <who has it>"
-- KEYS[4] inbox      stream  what others told the expired node
-- KEYS[5] reports    hash    node -> what it told of itself
-- KEYS[6] clocks     hash    node -> what it found of the clock of Redis
-- ARGV[1] expired node
-- ARGV[2] who finished
-- Result  1 if it is no longer listed, 0 if it came back or another node has the right by now
--
-- Invariant: only the node that has the right removes another.
local right = redis.call('HGET', KEYS[3], ARGV[1])
if not right or string.match(right, '^%d+ (.*)$') ~= ARGV[2] then
  return 0
end
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[2], ARGV[1])
redis.call('HDEL', KEYS[3], ARGV[1])
redis.call('DEL', KEYS[4])
redis.call('HDEL', KEYS[5], ARGV[1])
redis.call('HDEL', KEYS[6], ARGV[1])
return 1
