#!lua flags=no-writes
-- Read the oldest dead letters of a queue.
--
-- KEYS[1] messages  hash  id -> record; queue.lua
-- KEYS[2] dead      zset  id -> since when (ms), with a fraction
-- KEYS[3] notes     hash  id -> "<failed deliveries> <reason>"
-- ARGV[1] how many of the oldest to leave out
-- ARGV[2] how many
-- Result  {id, since when, note, record, ...}
local result = {}
local found = redis.call('ZRANGE', KEYS[2], ARGV[1], ARGV[1] + ARGV[2] - 1, 'WITHSCORES')
for at = 1, #found, 2 do
  local id = found[at]
  result[#result + 1] = id
  result[#result + 1] = string.format('%.0f', math.floor(found[at + 1]))
  result[#result + 1] = redis.call('HGET', KEYS[3], id)
  result[#result + 1] = redis.call('HGET', KEYS[1], id)
end
return result
