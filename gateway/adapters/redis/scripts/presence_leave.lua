#!lua flags=allow-oom
-- Make a session no member of a tree any more, as its owner asks.
--
-- KEYS[1] to KEYS[9], ARGV[1] to ARGV[6]    presence.lua
-- KEYS[10] to KEYS[12], ARGV[7] to ARGV[9]  presence_owner.lua
-- Result  1 if it was one, 0 if not; 'fenced': the session has a newer owner, or has ended; 'stale' or 'emptied' as in
--         topic_publish.lua
if is_fenced() then
  return 'fenced'
end
redis.call('HDEL', OWN, '\n' .. tree)
return leave(session)
