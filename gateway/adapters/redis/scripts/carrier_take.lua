#!lua flags=allow-oom
-- Take links that nobody has, and keep those that the node has.
--
-- KEYS[1] grid      hash  generation, carrier_term
-- KEYS[2] carriers  hash  link -> "<node> <term> <when it ends (ms)>"
-- ARGV[1] generation that the caller has adopted
-- ARGV[2] the node
-- ARGV[3] for how long (ms)
-- ARGV[4] most links that may be carried
-- ARGV[5] terms of a generation
-- ARGV[6..] the links
-- Result  for each of them "<node> <term> <for how long yet (ms)>"; 'stale' if the grid is of another generation: the
--         caller must adopt again; 'many' if there would be more than may be: nothing was written
--
-- Invariant: one node has a link. Terms rise with each node that takes one, also if the grid lost some.
-- Needs clock.lua.
if redis.call('HGET', KEYS[1], 'generation') ~= ARGV[1] then
  return 'stale'
end
local held, wanted, count = {}, {}, 0
for at = 6, #ARGV do
  wanted[ARGV[at]] = true
  count = count + 1
end
local rows = redis.pcall('HGETALL', KEYS[2])
if rows.err then
  -- What is there in its place cannot have come from the gateway.
  redis.call('DEL', KEYS[2])
  rows = {}
end
for at = 1, #rows, 2 do
  local node, term, ends = string.match(rows[at + 1], '^(%S+) (%d+) (%d+)$')
  if node and (tonumber(ends) > now or not sure) then
    held[rows[at]] = {node, term, tonumber(ends)}
  elseif node == ARGV[2] and wanted[rows[at]] then
    -- Nobody has taken it since.
    held[rows[at]] = {node, term, tonumber(ends)}
  else
    redis.call('HDEL', KEYS[2], rows[at])
  end
  if held[rows[at]] and not wanted[rows[at]] then
    count = count + 1
  end
end
if count > tonumber(ARGV[4]) then
  return 'many'
end
local ends, result = now + ARGV[3], {}
for at = 6, #ARGV do
  local link = ARGV[at]
  local known = held[link]
  if not known then
    local term = math.max(tonumber(redis.call('HGET', KEYS[1], 'carrier_term')) or 0, (ARGV[1] - 1) * ARGV[5]) + 1
    known = {ARGV[2], string.format('%.0f', term)}
    redis.call('HSET', KEYS[1], 'carrier_term', known[2])
  end
  if known[1] == ARGV[2] then
    known[3] = ends
    redis.call('HSET', KEYS[2], link, known[1] .. ' ' .. known[2] .. ' ' .. string.format('%.0f', ends))
  end
  result[#result + 1] = known[1] .. ' ' .. known[2] .. ' ' .. string.format('%.0f', known[3] - now)
end
return result
