#!lua flags=allow-oom
-- Keep what a node tells the others of itself.
--
-- KEYS[1] members  hash  node -> "<length of its lease in ms> <term>"
-- KEYS[2] reports  hash  node -> what it tells of itself
-- ARGV[1] node
-- ARGV[2] what it tells, JSON
-- Result  1 kept, 0 the node has no lease
--
-- Invariant: a node without lease has no report, so none is left behind.
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
  return 0
end
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
return 1
