#!lua flags=allow-oom
-- Remove a topic: put a removal in the place of its value, and forget removals that everybody has heard of.
--
-- KEYS[1] values   hash    topic -> "<version> <generation>-<sequence> <value>"; a removal has no value; '' -> a version
--                          that versions of new topics must be above, and bytes that the partition holds; sizes.lua
-- KEYS[2] stream   stream  entries [topic, "<version> <value>"]
-- KEYS[3] removed  zset    removed topic -> when to forget it (ms)
-- KEYS[4] sizes    hash    bytes of the stream; sizes.lua
-- KEYS[5] origins  hash    topic -> what crossed between clusters; removals.lua
-- ARGV[1] topic
-- ARGV[2] generation that the caller has adopted
-- ARGV[3] entries to keep in the stream, about
-- ARGV[4] how long to remember the removal (ms)
-- ARGV[5] most removals to forget in this step
-- ARGV[6] bytes to keep in the stream, about; 0 for no limit
-- Of a topic with history the keys and arguments that logs.lua says follow.
-- Result  {version, event, '1' if it was removed before, else '0'}, 'none' if there is no such topic, or 'stale' or
--         'emptied' as in topic_publish
--
-- Invariant: versions of a topic only rise, also over its removal and after that is forgotten.
-- A history begins anew with the removal, and whoever has not read it to its end will be told that events are missing.
-- Needs sizes.lua, removals.lua and logs.lua. It frees memory, so that it runs also where there is none left.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local found = redis.call('HMGET', KEYS[1], ARGV[1], '')
local stored = found[1]
if not stored then
  return 'none'
end
local version, event, value = string.match(stored, '^(%d+) (%S+) (.*)$')
if version and value == '' then
  return {tonumber(version), event, '1'}
end
local floor, total = read_floor(found[2])
if not total then
  -- What cannot be counted where no memory is left is counted by a later step.
  total = count_values(KEYS[4], KEYS[1])
end
-- What another program put here has no version, and goes like a value.
local known, bytes = read_value(stored)
version = string.format('%.0f', math.max(known or tonumber(floor), (ARGV[2] - 1) * 4294967296) + 1)
event = redis.pcall('XADD', KEYS[2], 'MAXLEN', '~', ARGV[3], ARGV[2] .. '-*', ARGV[1], version .. ' ')
if type(event) == 'table' then
  if string.find(event.err, 'equal or smaller', 1, true) then
    return 'stale'
  end
  return redis.error_reply(event.err)
end
if string.sub(event, -2) == '-0' then
  redis.call('DEL', KEYS[2], KEYS[4])
  return 'emptied'
end
redis.call('HSET', KEYS[1], ARGV[1], version .. ' ' .. event .. ' ')
count_entries(KEYS[4], KEYS[2], KEYS[1], event, #ARGV[1] + ENTRY_BYTES, tonumber(ARGV[6]))
redis.call('ZADD', KEYS[3], now + ARGV[4], ARGV[1])
if ARGV[7] then
  local logs = read_logs(6, 7)
  local log = logs[ARGV[1]]
  tools().drop_log(logs[''], ARGV[1], log.key)
  if begin_log(logs, ARGV[1], log, string.match(stored, '^%d+ (%d+%-%d+)')) then
    keep(log, event, version .. ' ')
    write_logs(logs)
  end
end

local least, freed = forget_removals(KEYS[1], KEYS[3], KEYS[5], now, ARGV[5], floor)
redis.call('HSET', KEYS[1], '', total and write_floor(least .. '.0', total - bytes - freed) or least)
return {tonumber(version), event, '0'}
