#!lua flags=allow-oom
-- Tell who has which link.
--
-- KEYS[1] carriers  hash  link -> "<node> <term> <when it ends (ms)>"
-- Result  link and "<node> <term> <for how long yet (ms)>" of each
--
-- Invariant: a link whose time is over is nobody's.
-- Needs clock.lua.
local rows, result = redis.call('HGETALL', KEYS[1]), {}
for at = 1, #rows, 2 do
  local node, term, ends = string.match(rows[at + 1], '^(%S+) (%d+) (%d+)$')
  if node and tonumber(ends) > now then
    result[#result + 1] = rows[at]
    result[#result + 1] = node .. ' ' .. term .. ' ' .. string.format('%.0f', ends - now)
  end
end
return result
