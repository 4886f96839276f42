#!lua flags=allow-oom
-- Make the cluster a member of a zone.
--
-- KEYS[1] grid  hash    generation, zone_revision
-- KEYS[2] held  hash    name of a record -> "<rank> <what it is (JSON)>"
-- KEYS[3] news  stream  "<revision>-0" -> [name, what is held]
-- ARGV[1] generation that the caller has adopted
-- ARGV[2] changes to keep, about
-- ARGV[3] "<kind>:<most>,…": how many records of each kind may be held
-- ARGV[4] uid of the zone
-- ARGV[5] "<rank> <what it is (JSON)>" of the zone
-- ARGV[6] the cluster
-- ARGV[7] "<rank> <what it is (JSON)>" of the cluster as a member
-- ARGV[8] "<rank> <what it is (JSON)>" of the membership
-- Result  {1, entries of other programs deleted, ''}; {-1, 0, ''} if the grid is of another generation: the caller must
--         adopt again; {-2, deleted, ''} if there is no room; {-3, deleted, uid} if the cluster is in another zone
--
-- Invariant: as of zones.lua. A cluster is in one zone at most. The rank of its own member record rises with each change.
-- Needs zones.lua.
if redis.call('HGET', KEYS[1], 'generation') ~= ARGV[1] then
  return {-1, 0, ''}
end
local _, swept = sweep('zone_revision')
local function said(held)
  return held and string.match(held, '^%S+ (.*)$')
end
local current = redis.call('HGET', KEYS[2], 'membership')
local known, decoded = pcall(cjson.decode, said(current) or '{}')
local uid = known and type(decoded) == 'table' and type(decoded.zone) == 'string' and decoded.zone or nil
if uid and uid ~= ARGV[4] then
  return {-3, swept, uid}
end
local zone, member = 'zone ' .. ARGV[4], 'member ' .. ARGV[4] .. ' ' .. ARGV[6]
local held_zone, held_member = unpack(redis.call('HMGET', KEYS[2], zone, member))
local bounds, counts = read_bounds(ARGV[3]), count_kinds()
if (not held_zone and (counts.zone or 0) >= bounds.zone) or (not held_member and (counts.member or 0) >= bounds.member) then
  return {-2, swept, ''}
end
if said(held_zone) ~= said(ARGV[5]) then
  hold(zone, ARGV[5], ARGV[2])
end
if not held_member then
  hold(member, ARGV[7], ARGV[2])
elseif said(held_member) ~= said(ARGV[7]) then
  local rank = math.max(rank_of(held_member) + 1, rank_of(ARGV[7]))
  hold(member, string.format('%.0f ', rank) .. said(ARGV[7]), ARGV[2])
end
if uid ~= ARGV[4] then
  hold('membership', ARGV[8], ARGV[2])
end
return {1, swept, ''}
