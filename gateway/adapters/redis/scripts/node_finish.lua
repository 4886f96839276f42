#!lua flags=allow-oom
-- Declare that an expired node is taken over, and remember it as lost for a while; or that all is cleaned up after it.
--
-- KEYS[1] leases     zset    node -> end of its lease (ms)
-- KEYS[2] members    hash    node -> "<length of its lease in ms> <term>"
-- KEYS[3] takeovers  hash    expired node -> see takeovers.lua
-- KEYS[4] inbox      stream  what others told the expired node
-- KEYS[5] reports    hash    node -> what it told of itself
-- KEYS[6] clocks     hash    node -> what it found of the clock of Redis
-- KEYS[7] lost       hash    lost node -> "<when its lease ended (ms)> <what it told of itself, or nothing>"
-- KEYS[8] backups    hash    node -> see node_backup.lua
-- KEYS[9] saved      hash    node -> up to when all that happened to its sessions is in the grid (ms)
-- ARGV[1] expired node
-- ARGV[2] who finished
-- ARGV[3] how long a lost node is remembered (ms)
-- ARGV[4] how many are, at most; of more, those that are lost for longest are forgotten
-- ARGV[5] how many nodes that are gone are remembered with their backups, at most
-- ARGV[6] how long after this something is to be cleaned up (ms), 0 if nothing is
-- Result  1 if it is no longer listed, 0 if it came back or another node has the right by now
--
-- Invariant: only the node that has the right removes another. What is remembered of lost nodes is bounded, and ends.
-- Needs clock.lua, backups.lua, takeovers.lua.
local right = right_to(KEYS[3], ARGV[1])
if right.by ~= ARGV[2] then
  return 0
end
local ended = redis.call('ZSCORE', KEYS[1], ARGV[1])
if not ended then
  redis.call('HDEL', KEYS[3], ARGV[1])
  return 1
end
if type(redis.pcall('HLEN', KEYS[7])) ~= 'number' then
  -- What is there in its place cannot have come from the gateway.
  redis.call('DEL', KEYS[7])
end
local report = redis.call('HGET', KEYS[5], ARGV[1]) or ''
redis.call('HSET', KEYS[7], ARGV[1], string.format('%.0f', ended) .. ' ' .. report)
local lost = redis.call('HGETALL', KEYS[7])
local left = {}
for at = 1, #lost, 2 do
  local since = tonumber(string.match(lost[at + 1], '^%d+'))
  if since and since > now - ARGV[3] then
    left[#left + 1] = {since, lost[at]}
  else
    redis.call('HDEL', KEYS[7], lost[at])
  end
end
table.sort(left, function(one, other) return one[1] > other[1] end)
for at = tonumber(ARGV[4]) + 1, #left do
  redis.call('HDEL', KEYS[7], left[at][2])
end
redis.call('PEXPIRE', KEYS[7], ARGV[3])
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[2], ARGV[1])
if ARGV[6] == '0' then
  redis.call('HDEL', KEYS[3], ARGV[1])
else
  give(KEYS[3], ARGV[1], '-', ARGV[6], '')
end
redis.call('DEL', KEYS[4])
redis.call('HDEL', KEYS[5], ARGV[1])
redis.call('HDEL', KEYS[6], ARGV[1])
redis.call('HDEL', KEYS[9], ARGV[1])
tidy_backups(KEYS[8], KEYS[1], ARGV[5])
return 1
