-- Precedes the steps that remove topics: forgets removals that everybody has heard of.
--
-- values   hash  topic -> "<version> <generation>-<sequence> <value>"; a removal has no value
-- removed  zset  removed topic -> when to forget it (ms)
-- origins  hash  topic -> see origins.lua; goes with the topic
--
-- Invariant: what is published to a forgotten topic has a version above that of its removal. Needs sizes.lua.

-- Forgets so many at most. Returns the version that those of new topics must be above, and how many bytes are free.
local function forget_removals(values, removed, origins, now, most, floor)
  local least, freed = tonumber(floor), 0
  for _, topic in ipairs(redis.call('ZRANGEBYSCORE', removed, '-inf', now, 'LIMIT', 0, most)) do
    local old = redis.call('HGET', values, topic)
    local last = old and string.match(old, '^(%d+) %S+ $')
    if last then
      least = math.max(least, tonumber(last))
      redis.call('HDEL', values, topic)
      redis.call('HDEL', origins, topic)
      freed = freed + #topic + VALUE_BYTES
    end
    redis.call('ZREM', removed, topic)
  end
  return string.format('%.0f', least), freed
end
