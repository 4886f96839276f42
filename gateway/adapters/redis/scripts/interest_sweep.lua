#!lua flags=allow-oom
-- Forget the interest of nodes that have had no lease for as long as they said.
--
-- KEYS[1] grid      hash    generation, interest_revision
-- KEYS[2] interest  hash    "<node> <selector>" -> '1'
-- KEYS[3] tellers   hash    node -> "<how long its interest outlives it (ms)> <when it ends (ms), 0 if not known> <selectors>"
-- KEYS[4] leases    zset    node -> end of its lease (ms)
-- KEYS[5] news      stream  "<revision>-0" -> ["<node> <selector>", '']
-- ARGV[1] generation that the caller has adopted
-- ARGV[2] changes to keep, about
-- Result  {nodes without a lease of which something is kept, entries of other programs deleted}; {-1, 0} if the grid is
--         of another generation: the caller must adopt again
--
-- Invariant: nothing is forgotten of a node that has a lease, or of one that has none before its time. What no record
-- ends, because somebody deleted that, ends now.
-- Needs clock.lua, revisions.lua.
if redis.call('HGET', KEYS[1], 'generation') ~= ARGV[1] then
  return {-1, 0}
end
local _, swept = sweep('interest_revision')
local ended, kept = {}, 0
local tellers = {}
local rows = redis.call('HGETALL', KEYS[3])
for at = 1, #rows, 2 do
  local node, keep, ends, count = rows[at], string.match(rows[at + 1], '^(%d+) (%d+) (%d+)$')
  tellers[node] = true
  if not redis.call('ZSCORE', KEYS[4], node) then
    if ends == '0' then
      ends = string.format('%.0f', now + keep)
      redis.call('HSET', KEYS[3], node, keep .. ' ' .. ends .. ' ' .. count)
    end
    if not ends or (tonumber(ends) <= now and sure) then
      ended[node] = true
      redis.call('HDEL', KEYS[3], node)
    else
      kept = kept + 1
    end
  elseif ends and ends ~= '0' then
    redis.call('HSET', KEYS[3], node, keep .. ' 0 ' .. count)
  end
end
for _, name in ipairs(redis.call('HKEYS', KEYS[2])) do
  local node = string.match(name, '^%S+')
  if not node or ended[node] or not tellers[node] then
    redis.call('HDEL', KEYS[2], name)
    tell('interest_revision', name, '', ARGV[2])
  end
end
return {kept, swept}
