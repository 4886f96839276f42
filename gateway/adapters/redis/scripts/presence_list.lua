#!lua
-- Tell of members of a tree who came while nobody watched, some at a time, and at last how many there are.
--
-- KEYS[1] to KEYS[9], ARGV[1] to ARGV[6]  presence.lua
-- ARGV[7] where to go on among the members, '0' to begin
-- ARGV[8] to ARGV[10] as of presence_enter.lua
-- ARGV[11] members to look at, about
-- Result  where to go on, '0' if that was all; 'stale' or 'emptied' as in topic_publish.lua
--
-- Invariant: whoever is told of already is not told of again. Needs presence_listing.lua. By its first line Redis refuses it
-- as a whole at the memory limit; there is another form of it that is not refused, to tell the number alone.
local listed, told = read_presence()
local before = listed
local cursor, found = unpack(redis.call('HSCAN', MEMBERS, ARGV[7], 'COUNT', ARGV[11]))
for at = 1, #found, 2 do
  local member, value = found[at], string.match(found[at + 1], '^0(.+)$')
  if value and may_list(member, value, listed, ARGV[8], ARGV[9], ARGV[10]) then
    local refusal = put(topic_of(member), value)
    if refusal then
      if listed > before then
        write_presence(listed, told)
      end
      return refusal
    end
    redis.call('HSET', MEMBERS, member, '1')
    listed = listed + 1
  end
end
if cursor == '0' or listed >= tonumber(ARGV[8]) then
  return tell_count(listed, told, false) or '0'
end
if listed > before then
  write_presence(listed, told)
end
return cursor
