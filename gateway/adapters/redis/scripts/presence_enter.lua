-- Make a session a member of a tree, or change what is told of it.
--
-- KEYS[1] to KEYS[9], ARGV[1] to ARGV[6]      presence.lua
-- KEYS[10] to KEYS[12], ARGV[11] to ARGV[13]  presence_owner.lua
-- ARGV[7] what is told of it, JSON text
-- ARGV[8] members of the tree that there may be topics of
-- ARGV[9] topics that the partition may hold for a new one to be created; 0 for no limit
-- ARGV[10] bytes of values that it may hold, likewise
-- Result  {'1' if it is a member from now on, else '0'; '1' if there is a topic of it; '1' if somebody watches}; 'fenced':
--         the session has a newer owner, or has ended; 'stale' or 'emptied' as in topic_publish.lua
--
-- Invariant: that a session which is a member becomes it again changes nothing, and tells nobody anything. Needs
-- presence_listing.lua.
if is_fenced() then
  return 'fenced'
end
local value = ARGV[7]
local before = redis.call('HGET', MEMBERS, session)
if not before then
  redis.call('HSET', OWN, '\n' .. tree, '')
end
local watched = is_watched()
if before == '1' then
  return put(topic_of(session), value) or {'0', '1', watched and '1' or '0'}
end
local listed, told, known = read_presence()
local shown = watched and may_list(session, value, listed, ARGV[8], ARGV[9], ARGV[10])
local refusal
if shown then
  refusal = put(topic_of(session), value)
  if refusal then
    return refusal
  end
end
local after = shown and '1' or '0' .. value
if before ~= after then
  redis.call('HSET', MEMBERS, session, after)
end
if shown or not before then
  if watched then
    refusal = tell_count(listed + (shown and 1 or 0), told, false)
  elseif told > 0 or not known then
    refusal = keep_untold(listed, told)
  end
end
return refusal or {before and '0' or '1', shown and '1' or '0', watched and '1' or '0'}
