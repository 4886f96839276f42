#!lua flags=allow-oom
-- Be a member of no zone any more. The zone stays known, and so does that the cluster was in it.
--
-- KEYS[1] grid  hash    generation, zone_revision
-- KEYS[2] held  hash    name of a record -> "<rank> <what it is (JSON)>"
-- KEYS[3] news  stream  "<revision>-0" -> [name, what is held]
-- ARGV[1] generation that the caller has adopted
-- ARGV[2] changes to keep, about
-- ARGV[3] the cluster
-- ARGV[4] "<rank> <what it is (JSON)>" of the membership in none
-- ARGV[5] what a member is that has left (JSON)
-- Result  {1, entries of other programs deleted, uid of the zone that was left}; {0, deleted, ''} if it was in none;
--         {-1, 0, ''} if the grid is of another generation: the caller must adopt again
--
-- Invariant: as of zones.lua. An older list of members cannot bring back who has left.
-- Needs zones.lua.
if redis.call('HGET', KEYS[1], 'generation') ~= ARGV[1] then
  return {-1, 0, ''}
end
local _, swept = sweep('zone_revision')
local current = redis.call('HGET', KEYS[2], 'membership')
local known, decoded = pcall(cjson.decode, current and string.match(current, '^%S+ (.*)$') or '{}')
local uid = known and type(decoded) == 'table' and type(decoded.zone) == 'string' and decoded.zone or nil
if not uid then
  return {0, swept, ''}
end
local member = 'member ' .. uid .. ' ' .. ARGV[3]
local held = redis.call('HGET', KEYS[2], member)
if held then
  hold(member, string.format('%.0f ', rank_of(held) + 1) .. ARGV[5], ARGV[2])
end
hold('membership', ARGV[4], ARGV[2])
return {1, swept, uid}
