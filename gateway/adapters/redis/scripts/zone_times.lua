#!lua flags=allow-oom
-- Note how far the stream of a partition has come by now, so that it can be told later when an event was published.
--
-- KEYS[1] stream   stream  of the partition
-- KEYS[2] origins  hash    '/times' -> see origins.lua
-- ARGV[1] generation that the caller has adopted
-- Result  'noted', or 'same' if the stream is where it was; or 'stale' or 'emptied' as in topic_publish
--
-- Invariant: places and times of the notes rise. Of too many the one goes that is missed least, as in
-- gateway/core/zones/stream_times.py; never the oldest one, as all before it has its time from there.
-- Needs clock.lua, origins.lua.
local sequence, why = last_place(KEYS[1], ARGV[1])
if why then
  return why
end
local place = ARGV[1] .. '-' .. string.format('%.0f', sequence)
local times = read_times(read_all(KEYS[2], {TIMES})[1])
-- The first entry of a generation is no event.
if sequence == 0 or times.newest and not is_before(times.newest, place) then
  return 'same'
end
local notes, time = read_notes(times), math.floor(now)
if #notes > 0 then
  time = math.max(time, notes[#notes][2])
end
notes[#notes + 1] = {place, time}
if #notes > MOST_TIMES then
  local least, chosen = math.huge, 2
  for at = 2, #notes - 1 do
    local before = notes[at - 1][2]
    local missed = (notes[at + 1][2] - before) / (time - before + 1)
    if missed < least then
      least, chosen = missed, at
    end
  end
  table.remove(notes, chosen)
end
local kept = {}
for at = 1, #notes do
  kept[at] = notes[at][1] .. ' ' .. string.format('%.0f', notes[at][2]) .. ';'
end
redis.call('HSET', KEYS[2], TIMES, table.concat(kept))
return 'noted'
