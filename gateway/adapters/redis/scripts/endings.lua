-- Values that end: precedes the steps that write them.
--
-- endings  hash  topic -> "<when it ends (ms)> <generation>-<sequence>": of the publish whose value ends
-- ends     zset  topic -> when it ends (ms)
--
-- Times are those of the grid. The entry of a stream says when its value ends, so that whoever follows it can put the value
-- back with its end. It also says its own id, as those of restored values do: nodes that do not know of ends read that.
--
-- Invariant: each topic is in both or in neither. Another publish leaves them as they are, which costs it nothing: whoever
-- executes an end compares the events.

-- Appends a value that ends to a stream; as XADD, with the error in the place of an exception.
local function append_ending(stream, length, generation, topic, entry, ends_at)
  local last = redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)[1]
  local newest, number = string.match(last and last[1] or '', '^(%d+)%-(%d+)$')
  if newest ~= generation then
    -- The stream is of another generation, or was emptied: what would be refused is refused as any other.
    return redis.pcall('XADD', stream, 'MAXLEN', '~', length, generation .. '-*', topic, entry)
  end
  local id = generation .. '-' .. string.format('%.0f', number + 1)
  return redis.pcall('XADD', stream, 'MAXLEN', '~', length, id, topic, entry, 'event', id, 'ends', ends_at)
end

-- Notes when a value ends that was published as this event.
local function note_ending(endings, ends, topic, event, ends_at)
  redis.call('HSET', endings, topic, ends_at .. ' ' .. event)
  redis.call('ZADD', ends, ends_at, topic)
end
