#!lua flags=allow-oom
-- Win the right to clean up what is transient of a node that was taken over, once the time for that has come.
--
-- KEYS[1] leases     zset  node -> end of its lease (ms)
-- KEYS[2] takeovers  hash  expired node -> see takeovers.lua
-- ARGV[1] the node
-- ARGV[2] who asks
-- ARGV[3] how long the right lasts (ms)
-- Result  {progress}, or {} if the right is not the caller's
--
-- Invariant: nothing is cleaned up of a node that has a lease, or before the time. One node at most has the right.
-- Needs clock.lua, takeovers.lua.
local right = right_to(KEYS[2], ARGV[1])
if not right.by or redis.call('ZSCORE', KEYS[1], ARGV[1]) then
  return {}
end
if right.by ~= ARGV[2] and holds(right, KEYS[1]) then
  return {}
end
give(KEYS[2], ARGV[1], ARGV[2], ARGV[3], right.progress)
return {right.progress}
