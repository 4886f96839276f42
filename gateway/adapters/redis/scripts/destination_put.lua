#!lua flags=allow-oom
-- Write one destination, or delete it, and tell of it.
--
-- KEYS[1] grid     hash    generation, destination_revision
-- KEYS[2] held     hash    name -> "<made> <what it is (JSON)>"
-- KEYS[3] changes  stream  "<revision>-0" -> [name, what is held, '' for no more]
-- ARGV[1] generation that the caller has adopted
-- ARGV[2] changes to keep, about
-- ARGV[3] most destinations that may be held
-- ARGV[4] name
-- ARGV[5] "<made> <what it is (JSON)>", '' to delete it
-- Result  {1 if that changed something else 0, entries of other programs deleted}; {-1, 0} if the grid is of another
--         generation: the caller must adopt again; {-2, deleted} if there are as many as may be: nothing was written
--
-- Invariant: as of destinations.lua. Never more than may be held. Nothing is written to a grid that was emptied before
-- it is adopted as such.
-- Needs destinations.lua.
if redis.call('HGET', KEYS[1], 'generation') ~= ARGV[1] then
  return {-1, 0}
end
local _, swept = sweep('destination_revision')
local name, value = ARGV[4], ARGV[5]
if value == '' then
  return {drop(name, ARGV[2]), swept}
end
if redis.call('HEXISTS', KEYS[2], name) == 0 and redis.call('HLEN', KEYS[2]) >= tonumber(ARGV[3]) then
  return {-2, swept}
end
return {hold(name, value, ARGV[2]), swept}
