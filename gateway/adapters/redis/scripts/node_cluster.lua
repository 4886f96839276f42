#!lua flags=allow-oom
-- Tell the id of the cluster whose grid this is; the first who asks gives it one.
--
-- KEYS[1] grid  hash  run_id, generation, seal, cluster
-- ARGV[1] seal of the generation that the caller has adopted
-- ARGV[2] id that it gets if it has none: the one that the caller knows, or a random one
-- Result  its id; or 'stale', and nothing is done, if the caller must adopt the grid again
--
-- Invariant: it changes only with the loss of all data, and not even then if the first who asks again knows it.
if redis.call('HGET', KEYS[1], 'seal') ~= ARGV[1] then
  return 'stale'
end
local id = redis.call('HGET', KEYS[1], 'cluster')
if not id or not string.match(id, '^[%w_-]+$') or #id > 64 then
  id = ARGV[2]
  redis.call('HSET', KEYS[1], 'cluster', id)
end
return id
