#!lua flags=allow-oom
-- Put destinations back that a grid which lost writes holds not at all, or as they were made earlier.
--
-- KEYS[1] grid     hash    generation, destination_revision
-- KEYS[2] held     hash    name -> "<made> <what it is (JSON)>"
-- KEYS[3] changes  stream  "<revision>-0" -> [name, what is held, '' for no more]
-- ARGV[1] generation that the caller has adopted
-- ARGV[2] changes to keep, about
-- ARGV[3] most destinations that may be held
-- ARGV[4..] name and "<made> <what it is (JSON)>" of each
-- Result  {how many were written, entries of other programs deleted}; {-1, 0} if the grid is of another generation: the
--         caller must adopt again
--
-- Invariant: as of destinations.lua. Never more than may be held; what does not fit is left out.
-- Needs destinations.lua.
if redis.call('HGET', KEYS[1], 'generation') ~= ARGV[1] then
  return {-1, 0}
end
local _, swept = sweep('destination_revision')
local written = 0
for index = 4, #ARGV, 2 do
  local name, value = ARGV[index], ARGV[index + 1]
  local held = redis.call('HGET', KEYS[2], name)
  local fits = held or redis.call('HLEN', KEYS[2]) < tonumber(ARGV[3])
  if fits and (not held or made(held) < made(value)) then
    written = written + hold(name, value, ARGV[2])
  end
end
return {written, swept}
