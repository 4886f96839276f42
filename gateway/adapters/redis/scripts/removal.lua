-- Precedes the steps that put a removal in the place of a value, and forget removals that everybody has heard of.
--
-- KEYS[1] values   hash    topic -> "<version> <generation>-<sequence> <value>"; a removal has no value; '' -> a version
--                          that versions of new topics must be above, and bytes that the partition holds; sizes.lua
-- KEYS[2] stream   stream  entries [topic, "<version> <value>"]
-- KEYS[3] removed  zset    removed topic -> when to forget it (ms, by the clock of Redis)
-- KEYS[4] sizes    hash    bytes of the stream; sizes.lua
-- KEYS[5] origins  hash    topic -> what crossed between clusters; removals.lua
--
-- Invariant: versions of a topic only rise, also over its removal and after that is forgotten.
-- Needs sizes.lua, removals.lua and logs.lua.

-- Puts a removal in the place of what is stored of a topic. Returns its version and event; or nothing, nothing, and what the
-- step answers instead: 'stale' or 'emptied' as in topic_publish, or an error.
-- generation: that the caller has adopted; length, bytes: to keep in the stream, about; memory: how long to remember the
-- removal (ms); forgotten: most removals to forget in this step
local function put_removal(topic, stored, generation, length, memory, forgotten, stream_bytes)
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  local floor, total = read_floor(redis.call('HGET', KEYS[1], ''))
  if not total then
    -- What cannot be counted where no memory is left is counted by a later step.
    total = count_values(KEYS[4], KEYS[1])
  end
  -- What another program put here has no version, and goes like a value.
  local known, bytes = read_value(stored)
  local version = string.format('%.0f', math.max(known or tonumber(floor), (generation - 1) * 4294967296) + 1)
  local event = redis.pcall('XADD', KEYS[2], 'MAXLEN', '~', length, generation .. '-*', topic, version .. ' ')
  if type(event) == 'table' then
    if string.find(event.err, 'equal or smaller', 1, true) then
      return nil, nil, 'stale'
    end
    return nil, nil, redis.error_reply(event.err)
  end
  if string.sub(event, -2) == '-0' then
    redis.call('DEL', KEYS[2], KEYS[4])
    return nil, nil, 'emptied'
  end
  redis.call('HSET', KEYS[1], topic, version .. ' ' .. event .. ' ')
  count_entries(KEYS[4], KEYS[2], KEYS[1], event, #topic + ENTRY_BYTES, tonumber(stream_bytes))
  redis.call('ZADD', KEYS[3], now + memory, topic)

  local least, freed = forget_removals(KEYS[1], KEYS[3], KEYS[5], now, forgotten, floor)
  redis.call('HSET', KEYS[1], '', total and write_floor(least .. '.0', total - bytes - freed) or least)
  return version, event
end

-- Takes a removal into the history of its topic, the only one of the logs.
local function log_removal(logs, topic, stored, version, event)
  local before = begin_log(logs, topic, 1, string.match(stored, '^%d+ (%d+%-%d+)'))
  if before then
    write_log(logs, 1, before, event, version .. ' ')
  end
end
