-- Make a session a member of a tree, or change what is told of it.
--
-- KEYS[1] to KEYS[8], ARGV[1] to ARGV[6]   presence.lua
-- KEYS[9] to KEYS[11], ARGV[7] to ARGV[9]  presence_owner.lua
-- ARGV[10] what is told of it, JSON text
-- ARGV[11] members of the tree that there may be topics of
-- ARGV[12] topics that the partition may hold for a new one to be created; 0 for no limit
-- ARGV[13] bytes of values that it may hold, likewise
-- Result  {'1' if it is a member from now on, else '0'; '1' if there is a topic of it}; 'fenced': the session has a newer
--         owner, or has ended; 'stale' or 'emptied' as in topic_publish.lua
--
-- Invariant: that a session which is a member becomes it again changes nothing, and tells nobody anything.
if is_fenced() then
  return 'fenced'
end
local listed, told = read_presence()
local before = redis.call('HGET', MEMBERS, session)
local topic = topic_of(session)
local shown = before == '1'
if not shown and listed < tonumber(ARGV[11]) then
  local _, total = read_floor(redis.call('HGET', VALUES, ''))
  local has_place = redis.call('HEXISTS', VALUES, topic) == 1
    or ARGV[12] == '0'
    or redis.call('HLEN', VALUES) <= tonumber(ARGV[12])
  local has_room = ARGV[13] == '0' or not total or total + #topic + #ARGV[10] + VALUE_BYTES <= tonumber(ARGV[13])
  shown = has_place and has_room
end
if shown then
  local refusal = put(topic, ARGV[10])
  if refusal then
    return refusal
  end
end
local after = shown and '1' or '0'
if before ~= after then
  redis.call('HSET', MEMBERS, session, after)
  redis.call('HSET', KEYS[9], '\n' .. tree, '')
  local refusal = tell_count(listed + (shown and 1 or 0), told, false)
  if refusal then
    return refusal
  end
end
return {before and '0' or '1', after}
