#!lua flags=allow-oom
-- Stamp events that are about to leave this cluster, in order.
--
-- KEYS[1] stream   stream  of the partition
-- KEYS[2] origins  hash    topic -> see origins.lua
-- ARGV[1] generation that the caller has adopted
-- ARGV[2] id of this cluster
-- ARGV[3..] topic, version, and place of each
-- Result  the mark of each, '' if a later event of its topic has one; or 'stale' or 'emptied' as in topic_publish
--
-- Invariant: stamps of a topic rise, whatever the clock says. An event has one stamp for good; its time is when it had been
-- published, as far as that was noted (zone_times.lua), and now otherwise.
-- Needs clock.lua, origins.lua.
local _, why = last_place(KEYS[1], ARGV[1])
if why then
  return why
end
local result, known, written = {}, {}, {}
local times = read_times(read_all(KEYS[2], {TIMES})[1])
for at = 3, #ARGV, 3 do
  local topic, version, place = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local origins = known[topic]
  if not origins then
    origins = read_origins(read_all(KEYS[2], {topic})[1])
    known[topic] = origins
  end
  if not origins.place or is_before(origins.place, place) then
    local time = time_of(times, place, math.floor(now))
    if origins.time then
      time = math.max(time, origins.time + 1)
    end
    set_mark(origins, place, time, ARGV[2], ARGV[2] .. ' ' .. version .. ' client -')
    written[topic] = true
  end
  result[#result + 1] = origins.place == place and origins.mark or ''
end
for topic in pairs(written) do
  redis.call('HSET', KEYS[2], topic, known[topic].mark .. '|' .. known[topic].seen)
end
return result
