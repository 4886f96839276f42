#!lua flags=allow-oom
-- Make destinations all that one origin says: write those that are new or say something else, delete its others.
--
-- KEYS[1] grid     hash    generation, destination_revision
-- KEYS[2] held     hash    name -> "<made> <what it is (JSON)>"
-- KEYS[3] changes  stream  "<revision>-0" -> [name, what is held, '' for no more]
-- ARGV[1] generation that the caller has adopted
-- ARGV[2] changes to keep, about
-- ARGV[3] most destinations that may be held
-- ARGV[4] what the names of the origin begin with
-- ARGV[5..] name and "<made> <what it is (JSON)>" of each
-- Result  {how many were written, entries of other programs deleted, how many were deleted}; {-1, 0, 0} if the grid is
--         of another generation: the caller must adopt again; {-2, deleted, 0} if they would be more than may be, with
--         those of other origins: nothing was written
--
-- Invariant: as of destinations.lua. All of it or nothing: two nodes with different files never leave a mixture.
-- Needs destinations.lua.
if redis.call('HGET', KEYS[1], 'generation') ~= ARGV[1] then
  return {-1, 0, 0}
end
local _, swept = sweep('destination_revision')
local wanted = {}
for index = 5, #ARGV, 2 do
  wanted[ARGV[index]] = true
end
local others, gone = 0, {}
for _, name in ipairs(redis.call('HKEYS', KEYS[2])) do
  if string.sub(name, 1, #ARGV[4]) ~= ARGV[4] then
    others = others + 1
  elseif not wanted[name] then
    gone[#gone + 1] = name
  end
end
if others + (#ARGV - 4) / 2 > tonumber(ARGV[3]) then
  return {-2, swept, 0}
end
for _, name in ipairs(gone) do
  drop(name, ARGV[2])
end
local written = 0
for index = 5, #ARGV, 2 do
  written = written + hold(ARGV[index], ARGV[index + 1], ARGV[2])
end
return {written, swept, #gone}
