#!lua flags=allow-oom
-- Keep how far a takeover, or the cleaning up after it, has come, and extend the right to it.
--
-- KEYS[1] takeovers  hash  expired node -> see takeovers.lua
-- ARGV[1] expired node
-- ARGV[2] who has the right
-- ARGV[3] how long it lasts from now on (ms)
-- ARGV[4] progress
-- Result  1 kept, 0 the right is another node's, or the expired node has come back
--
-- Invariant: only who has the right says how far it has come.
-- Needs clock.lua, takeovers.lua.
if right_to(KEYS[1], ARGV[1]).by ~= ARGV[2] then
  return 0
end
give(KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4])
return 1
