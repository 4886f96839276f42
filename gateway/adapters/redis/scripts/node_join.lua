#!lua flags=allow-oom
-- Take a lease.
--
-- KEYS[1] grid       hash    run_id, generation, seal, term
-- KEYS[2] leases     zset    node -> end of its lease (ms)
-- KEYS[3] members    hash    node -> "<length of its lease in ms> <term>"
-- KEYS[4] takeovers  hash    expired node -> see takeovers.lua
-- KEYS[5] renewed    string  when any node last took or renewed a lease (ms)
-- KEYS[6] lost       hash    lost node -> see node_lost.lua
-- KEYS[7] saved      hash    see saved.lua
-- ARGV[1] node
-- ARGV[2] length (ms)
-- ARGV[3] seal of the generation that the caller has adopted
-- ARGV[4] up to when all that happened to the node's sessions is in the grid (ms); '' leaves what it told before
-- Result  term; or 'stale', and nothing is done, if the caller must adopt the grid again
--
-- Invariant: every lease has a term above all earlier ones, so that a takeover of an earlier lease of the same node
-- cannot touch what the node writes now. A takeover under way is void.
-- Needs clock.lua and saved.lua.
if redis.call('HGET', KEYS[1], 'seal') ~= ARGV[3] then
  return 'stale'
end
local term = redis.call('HINCRBY', KEYS[1], 'term', 1)
redis.call('ZADD', KEYS[2], now + ARGV[2], ARGV[1])
redis.call('HSET', KEYS[3], ARGV[1], ARGV[2] .. ' ' .. term)
redis.call('HDEL', KEYS[4], ARGV[1])
-- It was not dead, or it would not come back. What another program may have put there is not ours to mind.
redis.pcall('HDEL', KEYS[6], ARGV[1])
redis.call('SET', KEYS[5], string.format('%.0f', now))
local told = redis.pcall('HKEYS', KEYS[7])
if told.err then
  -- What is there in its place cannot have come from the gateway.
  redis.call('DEL', KEYS[7])
end
for _, node in ipairs(told) do
  -- A node of an earlier release that removes another one knows nothing of this.
  if not redis.call('ZSCORE', KEYS[2], node) then
    redis.call('HDEL', KEYS[7], node)
  end
end
tell_saved(KEYS[7], ARGV[1], ARGV[4])
return term
