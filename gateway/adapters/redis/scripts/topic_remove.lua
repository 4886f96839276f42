#!lua flags=allow-oom
-- Remove a topic: put a removal in the place of its value, and forget removals that everybody has heard of.
--
-- KEYS[1] values   hash    topic -> "<version> <generation>-<sequence> <value>"; a removal has no value; '' -> a version
--                          that versions of new topics must be above, and bytes that the partition holds; sizes.lua
-- KEYS[2] stream   stream  entries [topic, "<version> <value>"]
-- KEYS[3] removed  zset    removed topic -> when to forget it (ms)
-- KEYS[4] sizes    hash    bytes of the stream; sizes.lua
-- KEYS[5] origins  hash    topic -> what crossed between clusters; removals.lua
-- KEYS[6] endings  hash    of values that end; endings.lua
-- KEYS[7] ends     zset    of them
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
-- Needs sizes.lua, removals.lua, logs.lua and removal.lua. It frees memory, so that it runs also where there is none left.
local stored = redis.call('HGET', KEYS[1], ARGV[1])
if not stored then
  return 'none'
end
local version, event, value = string.match(stored, '^(%d+) (%S+) (.*)$')
if version and value == '' then
  return {tonumber(version), event, '1'}
end
local refusal
version, event, refusal = put_removal(ARGV[1], stored, unpack(ARGV, 2, 6))
if refusal then
  return refusal
end
if ARGV[7] then
  local logs = read_logs(8, 7)
  tools().drop_log(logs, ARGV[1], KEYS[10])
  log_removal(logs, ARGV[1], stored, version, event)
end
redis.call('HDEL', KEYS[6], ARGV[1])
redis.call('ZREM', KEYS[7], ARGV[1])
return {tonumber(version), event, '0'}
