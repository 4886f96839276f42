#!lua flags=allow-oom
-- Write records of zones, each whose rank is above that of what is held under its name.
--
-- KEYS[1] grid  hash    generation, zone_revision
-- KEYS[2] held  hash    name of a record -> "<rank> <what it is (JSON)>"
-- KEYS[3] news  stream  "<revision>-0" -> [name, what is held]
-- ARGV[1] generation that the caller has adopted
-- ARGV[2] changes to keep, about
-- ARGV[3] "<kind>:<most>,…": how many records of each kind may be held
-- ARGV[4] "all" to write all of them or nothing, "some" to leave out those for which there is no room
-- ARGV[5] cluster of which others cannot tell anything, as it is this one; '' for none
-- ARGV[6..] name and "<rank> <what it is (JSON)>" of each; a name once
-- Result  {how many were written, entries of other programs deleted, how many were left out}; {-1, 0, 0} if the grid is
--         of another generation: the caller must adopt again; {-2, deleted, 0} if there was no room for all of them
--
-- Invariant: as of zones.lua. A rank never falls. What is told of this cluster itself raises the rank of its own record
-- above what was told, and changes nothing else.
-- Needs zones.lua.
if redis.call('HGET', KEYS[1], 'generation') ~= ARGV[1] then
  return {-1, 0, 0}
end
local _, swept = sweep('zone_revision')
local bounds, counts = read_bounds(ARGV[3]), count_kinds()
local wanted, left_out = {}, 0
for at = 6, #ARGV, 2 do
  local name, value = ARGV[at], ARGV[at + 1]
  local held, kind = redis.call('HGET', KEYS[2], name), kind_of(name) or ''
  if ARGV[5] ~= '' and string.match(name, '^member %S+ (%S+)$') == ARGV[5] then
    if held and rank_of(held) < rank_of(value) then
      wanted[#wanted + 1] = {name, string.format('%.0f', rank_of(value) + 1) .. string.match(held, '^%S+(.*)$')}
    end
  elseif not held and (counts[kind] or 0) >= (bounds[kind] or 0) then
    left_out = left_out + 1
  elseif not held or rank_of(held) < rank_of(value) then
    if not held then
      counts[kind] = (counts[kind] or 0) + 1
    end
    wanted[#wanted + 1] = {name, value}
  end
end
if left_out > 0 and ARGV[4] == 'all' then
  return {-2, swept, 0}
end
for _, each in ipairs(wanted) do
  hold(each[1], each[2], ARGV[2])
end
return {#wanted, swept, left_out}
