#!lua flags=allow-oom,no-writes
-- List the nodes with what they tell of themselves.
--
-- KEYS[1] leases   zset  node -> end of its lease (ms)
-- KEYS[2] reports  hash  node -> what it tells of itself
-- KEYS[3] members  hash  node -> "<length of its lease in ms> <term>"
-- Result  {nodes alive, nodes expired, {node, report, ...}, {node, member, ...}}
--
-- Invariant: the four lists are of one moment.
-- Needs clock.lua.
local bound = string.format('%.0f', now)
return {
  redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. bound, '+inf'),
  redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', bound),
  redis.call('HGETALL', KEYS[2]),
  redis.call('HGETALL', KEYS[3]),
}
