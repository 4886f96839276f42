#!lua flags=allow-oom,no-writes
-- List the nodes whose leases ended and that were taken over, for as long as they are remembered.
--
-- KEYS[1] lost    hash  lost node -> "<when its lease ended (ms)> <what it told of itself, or nothing>"
-- KEYS[2] leases  zset  node -> end of its lease (ms)
-- ARGV[1] how long a lost node is remembered (ms)
-- Result  {node, how long ago its lease ended (ms), report or '', ...}
--
-- Invariant: a node that has a lease is not lost.
-- Needs clock.lua.
if type(redis.pcall('HLEN', KEYS[1])) ~= 'number' then
  -- What is there in its place cannot have come from the gateway.
  return {}
end
local lost = redis.call('HGETALL', KEYS[1])
local found = {}
for at = 1, #lost, 2 do
  local since, report = string.match(lost[at + 1], '^(%d+) (.*)$')
  since = tonumber(since)
  if since and since > now - ARGV[1] and not redis.call('ZSCORE', KEYS[2], lost[at]) then
    found[#found + 1] = lost[at]
    found[#found + 1] = now - since
    found[#found + 1] = report
  end
end
return found
