#!lua flags=allow-oom
-- Delete a record of zones, which is a join.
--
-- KEYS[1] grid  hash    generation, zone_revision
-- KEYS[2] held  hash    name of a record -> "<rank> <what it is (JSON)>"
-- KEYS[3] news  stream  "<revision>-0" -> [name, '']
-- ARGV[1] generation that the caller has adopted
-- ARGV[2] changes to keep, about
-- ARGV[3] its name
-- Result  {1 if it was there else 0, entries of other programs deleted}; {-1, 0} if the grid is of another generation:
--         the caller must adopt again
--
-- Invariant: as of zones.lua.
-- Needs zones.lua.
if redis.call('HGET', KEYS[1], 'generation') ~= ARGV[1] then
  return {-1, 0}
end
local _, swept = sweep('zone_revision')
if redis.call('HDEL', KEYS[2], ARGV[3]) == 0 then
  return {0, swept}
end
tell('zone_revision', ARGV[3], '', ARGV[2])
return {1, swept}
