#!lua flags=allow-oom
-- Tell what the sessions of a node select.
--
-- KEYS[1] grid      hash    generation, interest_revision
-- KEYS[2] interest  hash    "<node> <selector>" -> '1'
-- KEYS[3] tellers   hash    node -> "<how long its interest outlives it (ms)> <when it ends (ms), 0 if not known> <selectors>"
-- KEYS[4] leases    zset    node -> end of its lease (ms)
-- KEYS[5] news      stream  "<revision>-0" -> ["<node> <selector>", '1', or '' for no more]
-- ARGV[1] generation that the caller has adopted
-- ARGV[2] changes to keep, about
-- ARGV[3] the node
-- ARGV[4] how long its interest outlives it (ms)
-- ARGV[5] most selectors of a node
-- ARGV[6] "whole" if what follows is all that it selects, "change" if it is the difference
-- ARGV[7] how many selectors are added
-- ARGV[8..] those that are added, and behind them those that are dropped
-- Result  {1, entries of other programs deleted}; {-1, 0} if the grid is of another generation: the caller must adopt
--         again; {-2, deleted} if the node has no lease, {-3, deleted} if it would have too many: nothing was written
--
-- Invariant: of each node of which something is held there is a record that ends it. Nothing is told that is told already.
-- Needs revisions.lua.
if redis.call('HGET', KEYS[1], 'generation') ~= ARGV[1] then
  return {-1, 0}
end
local _, swept = sweep('interest_revision')
local node, added = ARGV[3], tonumber(ARGV[7])
if not redis.call('ZSCORE', KEYS[4], node) then
  return {-2, swept}
end
local gone, count, new = {}, 0, {}
if ARGV[6] == 'whole' then
  local wanted = {}
  for at = 8, 7 + added do
    wanted[node .. ' ' .. ARGV[at]] = true
  end
  local length = #node + 1
  for _, name in ipairs(redis.call('HKEYS', KEYS[2])) do
    if string.sub(name, 1, length) == node .. ' ' then
      if wanted[name] then
        count = count + 1
      else
        gone[#gone + 1] = name
      end
    end
  end
else
  count = tonumber(string.match(redis.call('HGET', KEYS[3], node) or '', '^%d+ %d+ (%d+)$')) or 0
  for at = 8 + added, #ARGV do
    local name = node .. ' ' .. ARGV[at]
    if redis.call('HEXISTS', KEYS[2], name) == 1 then
      gone[#gone + 1] = name
      count = count - 1
    end
  end
end
for at = 8, 7 + added do
  local name = node .. ' ' .. ARGV[at]
  if redis.call('HEXISTS', KEYS[2], name) == 0 then
    new[#new + 1] = name
    count = count + 1
  end
end
if count > tonumber(ARGV[5]) then
  return {-3, swept}
end
for _, name in ipairs(gone) do
  redis.call('HDEL', KEYS[2], name)
  tell('interest_revision', name, '', ARGV[2])
end
for _, name in ipairs(new) do
  redis.call('HSET', KEYS[2], name, '1')
  tell('interest_revision', name, '1', ARGV[2])
end
if count > 0 then
  redis.call('HSET', KEYS[3], node, ARGV[4] .. ' 0 ' .. string.format('%.0f', count))
else
  redis.call('HDEL', KEYS[3], node)
end
return {1, swept}
