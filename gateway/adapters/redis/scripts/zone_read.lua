#!lua flags=allow-oom
-- Read all that is known of zones, or all interest.
--
-- KEYS[1] grid  hash    generation, and the revision
-- KEYS[2] held  hash    name -> what is held
-- KEYS[3] news  stream  "<revision>-0" -> [name, what is held, '' for no more]
-- ARGV[1] generation that the caller has adopted
-- ARGV[2] field of the revision in the grid
-- Result  {revision, entries of other programs deleted, name, what is held, …}; {-1, 0} if the grid is of another
--         generation: the caller must adopt again
--
-- Invariant: whoever applies all changes after that revision to what was read, has it all. What is read is bounded, as
-- what may be written is.
-- Needs revisions.lua.
if redis.call('HGET', KEYS[1], 'generation') ~= ARGV[1] then
  return {-1, 0}
end
local revision, swept = sweep(ARGV[2])
local result = redis.call('HGETALL', KEYS[2])
table.insert(result, 1, swept)
table.insert(result, 1, revision)
return result
