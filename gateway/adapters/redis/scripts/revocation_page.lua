#!lua flags=allow-oom
-- Read one page of the revocations, in the order of their names.
--
-- KEYS[1] grid   hash  generation, revision
-- KEYS[2] held   hash  name -> "<made> <until or -> <reason>"
-- KEYS[3] names  zset  the names, all with score 0
-- KEYS[4] changes  stream  "<revision>-0" -> [name, what is held, '' for no more]
-- ARGV[1] generation that the caller has adopted
-- ARGV[2] the last name of the page before; '' for the first page
-- ARGV[3] most to read
-- Result  {revision, entries of other programs deleted, name, what is held, …}; {-1, 0} if the grid is of another
--         generation: the caller must adopt again
--
-- Invariant: whoever applies all changes after the revision of his first page to what the pages hold, has it all.
-- Needs revisions.lua.
if redis.call('HGET', KEYS[1], 'generation') ~= ARGV[1] then
  return {-1, 0}
end
local revision, swept = 0, 0
if ARGV[2] == '' then
  revision, swept = sweep('revision')
end
local result = {revision, swept}
local start = ARGV[2] == '' and '-' or '(' .. ARGV[2]
local names = redis.call('ZRANGEBYLEX', KEYS[3], start, '+', 'LIMIT', 0, ARGV[3])
if #names > 0 then
  local held = redis.call('HMGET', KEYS[2], unpack(names))
  for index, name in ipairs(names) do
    result[#result + 1] = name
    result[#result + 1] = held[index]
  end
end
return result
