-- Precedes the steps that tell of a member. Needs presence.lua.

-- Tells whether there may be a topic of one more member.
local function may_list(member, value, listed, most_listed, most_topics, most_bytes)
  if listed >= tonumber(most_listed) then
    return false
  end
  local topic = topic_of(member)
  local _, total = read_floor(redis.call('HGET', VALUES, ''))
  local has_place = most_topics == '0'
    or redis.call('HEXISTS', VALUES, topic) == 1
    or redis.call('HLEN', VALUES) <= tonumber(most_topics)
  return has_place and (most_bytes == '0' or not total or total + #topic + #value + VALUE_BYTES <= tonumber(most_bytes))
end
