#!lua flags=allow-oom
-- End the value of a topic whose time is over: put a removal in its place.
--
-- KEYS[1..5] values, stream, removed, sizes, origins; removal.lua
-- KEYS[6] endings  hash  of values that end; endings.lua
-- KEYS[7] ends     zset  of them
-- ARGV[1] topic
-- ARGV[2] generation that the caller has adopted
-- ARGV[3] entries to keep in the stream, about
-- ARGV[4] how long to remember the removal (ms)
-- ARGV[5] most removals to forget in this step
-- ARGV[6] bytes to keep in the stream, about; 0 for no limit
-- Of a topic with history the keys and arguments that logs.lua says follow.
-- Result  1 if the value has ended now; 0 if there was nothing to end, as another publish took its place, or its time is not
--         over; 'stale' or 'emptied' as in topic_publish
--
-- Invariant: a value ends once, and only the very publish that was to end. Its history goes on, with the removal as an event.
-- Needs clock.lua, sizes.lua, removals.lua, logs.lua and removal.lua. It frees memory, so that it runs also where there is none left.
local topic = ARGV[1]
local noted = redis.call('HGET', KEYS[6], topic)
local due, mine = string.match(noted or '', '^(%d+) (%d+%-%d+)$')
if due and tonumber(due) > now then
  -- Another value, which ends later, came meanwhile.
  redis.call('ZADD', KEYS[7], due, topic)
  return 0
end
local stored = redis.call('HGET', KEYS[1], topic)
local event, value = string.match(stored or '', '^%d+ (%S+) (.*)$')
local ends = due and event == mine and value ~= ''
if ends then
  local version, refusal
  version, event, refusal = put_removal(topic, stored, unpack(ARGV, 2, 6))
  if refusal then
    return refusal
  end
  if ARGV[7] then
    log_removal(read_logs(8, 7), topic, stored, version, event)
  end
end
redis.call('HDEL', KEYS[6], topic)
redis.call('ZREM', KEYS[7], topic)
return ends and 1 or 0
