#!lua flags=allow-oom
-- Read all destinations.
--
-- KEYS[1] grid     hash    generation, destination_revision
-- KEYS[2] held     hash    name -> "<made> <what it is (JSON)>"
-- KEYS[3] changes  stream  "<revision>-0" -> [name, what is held, '' for no more]
-- ARGV[1] generation that the caller has adopted
-- Result  {revision, entries of other programs deleted, name, what is held, …}; {-1, 0} if the grid is of another
--         generation: the caller must adopt again
--
-- Invariant: whoever applies all changes after that revision to what was read, has it all. There are at most as many as
-- destination_put and destination_apply let in.
-- Needs revisions.lua.
if redis.call('HGET', KEYS[1], 'generation') ~= ARGV[1] then
  return {-1, 0}
end
local revision, swept = sweep('destination_revision')
local result = redis.call('HGETALL', KEYS[2])
table.insert(result, 1, swept)
table.insert(result, 1, revision)
return result
