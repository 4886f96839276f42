#!lua flags=allow-oom
-- Write revocations, and tell of each that was written.
--
-- KEYS[1] grid     hash    generation, revision
-- KEYS[2] held     hash    name -> "<made> <until or -> <reason>"
-- KEYS[3] names    zset    the names, all with score 0
-- KEYS[4] changes  stream  "<revision>-0" -> [name, what is held, '' for no more]
-- ARGV[1] generation that the caller has adopted
-- ARGV[2] changes to keep, about
-- ARGV[3] '1' write each whatever is held, '0' only if it is not held, or was made before
-- ARGV[4..] name and "<made> <until or -> <reason>" of each
-- Result  {how many were written, entries of other programs deleted}; {-1, 0} if the grid is of another generation: the
--         caller must adopt again
--
-- Invariant: names, what is held and the changes go together, and revisions have no hole, so a reader that meets one
-- has missed something. Nothing is written to a grid that was emptied before it is adopted as such: whoever then reads
-- all of it finds what was acknowledged.
-- Needs revisions.lua.
if redis.call('HGET', KEYS[1], 'generation') ~= ARGV[1] then
  return {-1, 0}
end
local written = 0
local _, swept = sweep('revision')
for index = 4, #ARGV, 2 do
  local name, value = ARGV[index], ARGV[index + 1]
  local held = ARGV[3] == '0' and redis.call('HGET', KEYS[2], name)
  if not held or (tonumber(string.match(held, '^%S+')) or 0) < tonumber(string.match(value, '^%S+')) then
    redis.call('HSET', KEYS[2], name, value)
    redis.call('ZADD', KEYS[3], 0, name)
    tell('revision', name, value, ARGV[2])
    written = written + 1
  end
end
return {written, swept}
