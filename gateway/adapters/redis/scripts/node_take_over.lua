#!lua flags=allow-oom
-- Win the right to take over from an expired node.
--
-- KEYS[1] leases     zset  node -> end of its lease (ms)
-- KEYS[2] members    hash  node -> "<length of its lease in ms> <term>"
-- KEYS[3] takeovers  hash  expired node -> see takeovers.lua
-- KEYS[4] grid       hash  outage_over: when the last outage was over (ms)
-- KEYS[5] saved      hash  node -> up to when all that happened to its sessions is in the grid (ms)
-- ARGV[1] expired node
-- ARGV[2] who asks
-- ARGV[3] how long the right lasts (ms)
-- Result  {term of the expired lease, its length (ms), how long ago it ended (ms), progress, 1 if there was an outage
--         since the node last told what it has saved, else 0}, or {} if the right is not the caller's
--
-- Invariant: at any time one node at most has the right, and only while the lease is expired. What was kept of the
-- progress stays.
-- Needs clock.lua, takeovers.lua.
local ends = redis.call('ZSCORE', KEYS[1], ARGV[1])
if not ends or tonumber(ends) > now or not sure then
  return {}
end
local right = right_to(KEYS[3], ARGV[1])
if right.by and right.by ~= ARGV[2] and holds(right, KEYS[1]) then
  return {}
end
local length, term = string.match(redis.call('HGET', KEYS[2], ARGV[1]) or '', '^(%d+) (%d+)$')
if not length then
  -- No node can have joined like this: another program has written, or broken, what is there.
  redis.call('ZREM', KEYS[1], ARGV[1])
  redis.call('HDEL', KEYS[2], ARGV[1])
  redis.call('HDEL', KEYS[3], ARGV[1])
  redis.call('HDEL', KEYS[5], ARGV[1])
  return {}
end
give(KEYS[3], ARGV[1], ARGV[2], ARGV[3], right.progress)
local saved = tonumber(redis.call('HGET', KEYS[5], ARGV[1]) or '')
local outage_over = tonumber(redis.call('HGET', KEYS[4], 'outage_over') or '')
local unsaved = saved and outage_over and saved < outage_over and 1 or 0
return {tonumber(term), tonumber(length), now - ends, right.progress, unsaved}
