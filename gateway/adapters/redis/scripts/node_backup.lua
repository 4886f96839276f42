#!lua flags=allow-oom
-- Tell which node keeps copies of the sessions of another one.
--
-- KEYS[1] leases   zset  node -> end of its lease (ms)
-- KEYS[2] backups  hash  node -> "<how long it is kept without the node (ms)> <when it is forgotten, or 0> <backup (JSON)>"
-- ARGV[1] node
-- ARGV[2] for how long it is kept when the node is gone (ms)
-- ARGV[3] which node is its backup, and what that holds, JSON; '' for none
-- ARGV[4] how many nodes that are gone are remembered, at most
-- Result  1 kept, 0 the lease of the node does not hold
--
-- Invariant: only a node whose lease holds says what its backup holds. Who was fenced has nothing to say any more.
-- Needs clock.lua, backups.lua.
tidy_backups(KEYS[2], KEYS[1], ARGV[4])
local ends = redis.call('ZSCORE', KEYS[1], ARGV[1])
if not ends or tonumber(ends) <= now then
  return 0
end
if ARGV[3] == '' then
  redis.call('HDEL', KEYS[2], ARGV[1])
else
  redis.call('HSET', KEYS[2], ARGV[1], ARGV[2] .. ' 0 ' .. ARGV[3])
  redis.call('PERSIST', KEYS[2])
end
return 1
