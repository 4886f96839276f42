#!lua flags=allow-oom
-- Give a lease to nodes of which no lease is known.
--
-- KEYS[1] grid       hash  run_id, generation, seal, term
-- KEYS[2] leases     zset  node -> end of its lease (ms)
-- KEYS[3] members    hash  node -> "<length of its lease in ms> <term>"
-- KEYS[4] saved      hash  node -> up to when all that happened to its sessions is in the grid (ms)
-- ARGV[1] length (ms)
-- ARGV[2] seal of the generation that the caller has adopted
-- ARGV[3..] nodes
-- Result  the nodes that were given one; or 'stale', and nothing is done, if the caller must adopt the grid again
--
-- Invariant: a lease that is there stays as it is, held or expired. The term is above all earlier ones, as by a join, so
-- whatever the node wrote before falls to whoever takes over when nobody renews this lease. What it has saved nobody knows.
-- Needs clock.lua.
if redis.call('HGET', KEYS[1], 'seal') ~= ARGV[2] then
  return 'stale'
end
local granted = {}
for at = 3, #ARGV do
  if redis.call('ZADD', KEYS[2], 'NX', now + ARGV[1], ARGV[at]) == 1 then
    local term = redis.call('HINCRBY', KEYS[1], 'term', 1)
    redis.call('HSET', KEYS[3], ARGV[at], ARGV[1] .. ' ' .. term)
    if not redis.call('HGET', KEYS[4], ARGV[at]) then
      redis.call('HSET', KEYS[4], ARGV[at], 0)
    end
    granted[#granted + 1] = ARGV[at]
  end
end
return granted
