#!lua flags=allow-oom
-- Delete revocations, and tell of each that was deleted.
--
-- KEYS[1] grid     hash    generation, revision
-- KEYS[2] held     hash    name -> "<made> <until or -> <reason>"
-- KEYS[3] names    zset    the names, all with score 0
-- KEYS[4] changes  stream  "<revision>-0" -> [name, what is held, '' for no more]
-- ARGV[1] generation that the caller has adopted
-- ARGV[2] changes to keep, about
-- ARGV[3..] name of each and what must be held for it to be deleted, '' for anything
-- Result  {how many were deleted, entries of other programs deleted}; {-1, 0} if the grid is of another generation: the
--         caller must adopt again
--
-- Invariant: as of revocation_put. One that was made anew while it ended is not deleted with its former self.
-- Needs revisions.lua.
if redis.call('HGET', KEYS[1], 'generation') ~= ARGV[1] then
  return {-1, 0}
end
local deleted = 0
local _, swept = sweep('revision')
for index = 3, #ARGV, 2 do
  local name, expected = ARGV[index], ARGV[index + 1]
  local held = redis.call('HGET', KEYS[2], name)
  if held and (expected == '' or held == expected) then
    redis.call('HDEL', KEYS[2], name)
    redis.call('ZREM', KEYS[3], name)
    tell('revision', name, '', ARGV[2])
    deleted = deleted + 1
  end
end
return {deleted, swept}
