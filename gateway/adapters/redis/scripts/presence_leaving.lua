-- Precedes the steps that take a member out of a tree. Needs presence.lua.

-- Returns 1, 0 if the session was no member, or what the step answers instead.
local function leave(member)
  local before = redis.call('HGET', MEMBERS, member)
  if not before then
    return 0
  end
  local listed, told = read_presence()
  if before == '1' then
    local refusal = put(topic_of(member), '')
    if refusal then
      return refusal
    end
    listed = math.max(0, listed - 1)
  end
  redis.call('HDEL', MEMBERS, member)
  if is_watched() then
    return tell_count(listed, told, false) or 1
  end
  return keep_untold(listed, told) or 1
end
