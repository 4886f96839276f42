#!lua flags=allow-oom
-- Free the cursor of a hook in one stream of the journal.
--
-- KEYS[1] state    hash    see hook_read.lua
-- ARGV[1] the hook
-- Result  1; 0 if there was none
--
-- Invariant: "hooks" counts the cursors in the hash.
if redis.call('HDEL', KEYS[1], 'hook:' .. ARGV[1]) == 0 then
  return 0
end
if redis.call('HINCRBY', KEYS[1], 'hooks', -1) <= 0 then
  redis.call('HDEL', KEYS[1], 'hooks')
end
return 1
