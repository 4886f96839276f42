#!lua flags=allow-oom
-- Give a lease back; nobody needs to take over.
--
-- KEYS[1] leases     zset    node -> end of its lease (ms)
-- KEYS[2] members    hash    node -> "<length of its lease in ms> <term>"
-- KEYS[3] takeovers  hash    expired node -> see takeovers.lua
-- KEYS[4] inbox      stream  what others told the node
-- KEYS[5] reports    hash    node -> what it tells of itself
-- KEYS[6] clocks     hash    node -> what it found of the clock of Redis
-- KEYS[7] backups    hash    node -> see node_backup.lua
-- KEYS[8] saved      hash    node -> up to when all that happened to its sessions is in the grid (ms)
-- ARGV[1] node
-- ARGV[2] how many nodes that are gone are remembered with their backups, at most
-- Result  1
--
-- Invariant: nothing of the node is left but which node has copies of its sessions, for as long as they can be asked for.
-- Needs clock.lua, backups.lua.
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[2], ARGV[1])
redis.call('HDEL', KEYS[3], ARGV[1])
redis.call('DEL', KEYS[4])
redis.call('HDEL', KEYS[5], ARGV[1])
redis.call('HDEL', KEYS[6], ARGV[1])
redis.call('HDEL', KEYS[8], ARGV[1])
tidy_backups(KEYS[7], KEYS[1], ARGV[2])
return 1
