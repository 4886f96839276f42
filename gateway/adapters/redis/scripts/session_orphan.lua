#!lua flags=allow-oom
-- Put one session of an expired node on the clock.
--
-- KEYS[1] session    hash  see keys.py
-- KEYS[2] owned      zset  "<owner> <id>" of every connected session of the partition
-- KEYS[3] deadlines  zset  id -> end of its window (ms)
-- ARGV[1] id
-- ARGV[2] expired node
-- ARGV[3] term of its expired lease
-- Result  epoch of the session, which is on the clock; 0 if it is none of the expired node's any more: claimed, ended, or
--         written under a later lease, as the node has come back and its sessions are its own
--
-- Invariant: only a session that the expired node still owns, and wrote under the expired lease, is touched. Asking twice
-- answers the same and does not lengthen the window.
-- Needs clock.lua.
local stored = redis.call('HMGET', KEYS[1], 'owner', 'connected', 'window', 'term', 'epoch', 'ended')
local is_theirs = stored[1] == ARGV[2] and not stored[6]
if is_theirs and stored[2] == '1' then
  if tonumber(stored[4]) > tonumber(ARGV[3]) then
    return 0
  end
  redis.call('HSET', KEYS[1], 'connected', '0')
  redis.call('ZADD', KEYS[3], now + math.floor(stored[3] * 1000), ARGV[1])
end
redis.call('ZREM', KEYS[2], ARGV[2] .. ' ' .. ARGV[1])
return is_theirs and tonumber(stored[5]) or 0
