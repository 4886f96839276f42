#!lua flags=no-writes
-- List topics whose value is to end by now, of several partitions; on a Redis Cluster of one, as partitions share no slot.
--
-- KEYS[1] and all others  ends  zset  of a partition: topic -> when its value ends (ms)
-- ARGV[1] most to list of each
-- Result  topics, those due longest first in each partition
-- Needs clock.lua: nothing is listed for who is not sure of the time.
local due = {}
for _, ends in ipairs(sure and KEYS or {}) do
  for _, topic in ipairs(redis.call('ZRANGEBYSCORE', ends, '-inf', now, 'LIMIT', 0, ARGV[1])) do
    due[#due + 1] = topic
  end
end
return due
