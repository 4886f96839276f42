#!lua flags=allow-oom
-- Make a session that has ended no member of a tree any more (P7).
--
-- KEYS[1] to KEYS[9], ARGV[1] to ARGV[6]  presence.lua
-- KEYS[10] consuming hash  of the session in this partition; presence_owner.lua
-- ARGV[7] session
-- Result  1 if it was one, 0 if not; 'stale' or 'emptied' as in topic_publish.lua
--
-- Invariant: nothing of the session is left with the tree, nor the hash of what it leaves, if this was all.
local result = ARGV[4] == '' and 0 or leave(ARGV[7])
if type(result) == 'number' then
  redis.call('HDEL', KEYS[10], '\n' .. tree, '\n')
end
return result
