-- Put one value back of which a grid that lost writes has an older publish, or none at all.
--
-- KEYS[1] values   hash    topic -> "<version> <generation>-<sequence> <value>"
--                          '' -> a version that versions of new topics must be above, and bytes that the partition
--                          holds; sizes.lua
-- KEYS[2] stream   stream  entries [topic, "<version> <value>", "event", "<generation>-<sequence> of the publish"]
-- KEYS[3] removed  zset    removed topic -> when to forget it (ms)
-- KEYS[4] sizes    hash    bytes of the stream; sizes.lua
-- KEYS[5] endings  hash    of values that end; endings.lua
-- KEYS[6] ends     zset    of them
-- ARGV[1] topic
-- ARGV[2] value, JSON text; empty for a removal
-- ARGV[3] version
-- ARGV[4] event of the publish, "<generation>-<sequence>"
-- ARGV[5] generation that the caller has adopted
-- ARGV[6] entries to keep in the stream, about
-- ARGV[7] how long to remember a removal (ms)
-- ARGV[8] bytes to keep in the stream, about; 0 for no limit
-- ARGV[9] when the value ends (ms of the time of the grid), 0 for never
-- Result  1 written, 0 the grid has this publish or a later one, or has forgotten the topic since it was removed,
--         'stale' or 'emptied' as in topic_publish
--
-- Invariant: versions of a topic only rise, and one that was removed does not rise again. A removal of what the grid
-- does not hold is not worth remembering. Which of two publishes is the later one is told by their events: versions
-- that are below the floor of this generation have been shown as the floor, so that the one that is put back must be
-- above it; and not by one, as it is no successor.
--
-- Needs sizes.lua and endings.lua. What was accepted before is put back whatever the partition holds.
local found = redis.call('HMGET', KEYS[1], ARGV[1], '')
local stored = found[1]
local floor, total = read_floor(found[2])
local least = (ARGV[5] - 1) * 4294967296
if not stored then
  local forgotten = tonumber(floor)
  if ARGV[2] == '' or forgotten >= tonumber(ARGV[3]) then
    return 0
  end
  least = math.max(least, forgotten)
else
  local version, generation, sequence = string.match(stored, '^(%d+) (%d+)-(%d+)')
  local mine, number = string.match(ARGV[4], '^(%d+)-(%d+)$')
  if not version then
    -- What another program put here is older than anything.
    version, generation, sequence = '0', '0', '0'
  end
  generation, mine = tonumber(generation), tonumber(mine)
  if generation > mine or (generation == mine and tonumber(sequence) >= tonumber(number)) then
    return 0
  end
  least = math.max(least, read_value(stored) or 0)
end
local version = tonumber(ARGV[3])
if version <= least then
  version = least + 2
end
version = string.format('%.0f', version)
if not total then
  local refusal
  total, refusal = count_values(KEYS[4], KEYS[1])
  if not total then
    return redis.error_reply(refusal.err)
  end
end
local fields = {ARGV[1], version .. ' ' .. ARGV[2], 'event', ARGV[4]}
if ARGV[9] ~= '0' then
  fields[5], fields[6] = 'ends', ARGV[9]
end
local entry = redis.pcall('XADD', KEYS[2], 'MAXLEN', '~', ARGV[6], ARGV[5] .. '-*', unpack(fields))
if type(entry) == 'table' then
  if string.find(entry.err, 'equal or smaller', 1, true) then
    return 'stale'
  end
  return redis.error_reply(entry.err)
end
if string.sub(entry, -2) == '-0' then
  redis.call('DEL', KEYS[2], KEYS[4])
  return 'emptied'
end
if stored then
  local _, bytes = read_value(stored)
  total = total + #ARGV[2] - bytes
else
  total = total + #ARGV[1] + #ARGV[2] + VALUE_BYTES
end
redis.call('HSET', KEYS[1], ARGV[1], version .. ' ' .. ARGV[4] .. ' ' .. ARGV[2], '', write_floor(floor, total))
count_entries(KEYS[4], KEYS[2], KEYS[1], entry, #ARGV[1] + #ARGV[2] + ENTRY_BYTES, tonumber(ARGV[8]))
if ARGV[9] ~= '0' then
  note_ending(KEYS[5], KEYS[6], ARGV[1], ARGV[4], ARGV[9])
end
if ARGV[2] == '' then
  local time = redis.call('TIME')
  redis.call('ZADD', KEYS[3], time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[7], ARGV[1])
end
return 1
