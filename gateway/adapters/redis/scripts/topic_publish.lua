-- Publish values of one session, each exactly once (P5): in each partition in the order of the session's requests.
--
-- Five keys for each partition; on a Redis Cluster there is one, as partitions do not share a slot:
-- KEYS[1] values    hash    topic -> "<version> <generation>-<sequence> <value>"; '' -> a version that versions of new
--                           topics must be above, as they may be those of topics that were removed and forgotten
-- KEYS[2] stream    stream  entries [topic, "<version> <value>"]
-- KEYS[3] receipts  list    of the session in this partition: "<epoch> <request> <version> <event> <settled>", by request
-- KEYS[4] closed    zset    short hashes of ended sessions that published here -> when to forget them (ms)
-- KEYS[5] sizes     hash    bytes that the partition holds; sizes.lua
-- ARGV[1] epoch of the session's owner
-- ARGV[2] settled: receipts up to this request may be forgotten
-- ARGV[3] generation that the caller has adopted
-- ARGV[4] entries to keep in a stream, about
-- ARGV[5] short hash of the session's id
-- ARGV[6] milliseconds for which the receipts outlive this publish, if the end of the session does not remove them
-- ARGV[7] topics that a partition may hold for a new one to be created; 0 for no limit, -1 to create none
-- ARGV[8] bytes of values that a partition may hold for one to grow or to be added; 0 for no limit
-- ARGV[9] bytes to keep in a stream, about; 0 for no limit
-- ARGV[10..] for each partition: previous, the request before the first that was sent to this partition and is not
--         answered yet, 0 if none; how many publishes follow; and of each of these: request, topic, and value as JSON text
-- Result  for each partition one of
--           {event, answer, ...}  event of the first that was published now, '' if none was, and for each publish
--             version             published: its event has the next number after that of the one published before it
--             -version            the same, and the topic is new
--             {version, event}    published before; {0, ''} if that receipt was forgotten
--             {0, '-'}            the topic is not there and was not created, now or before
--             {0, '+'}            the same, and this was decided now
--             {1, '-'}, {1, '+'}  as these two, and not written because the partition holds too many bytes
--           'fenced'              a newer owner published here, or the session has ended
--           'broken'              the previous request was not executed, so these must not be
--         or, instead of all of these, if it ended at some partition
--           'stale'               the grid is of another generation: the caller must adopt again
--           'emptied'             a stream was deleted: a new generation is needed, as its numbers start again
--           an error              Redis refuses to write
--
-- Invariant: requests of a session rise in the receipts; a request is executed only if it is above the last of them.
-- Receipts always have an end, whatever happens to their session.
-- Needs sizes.lua. A publish that makes a value no larger is never refused for bytes.
-- What many publishes have in common is looked at once: half of what a publish would cost alone.
local epoch, settled, generation, length, hash, life, most, most_bytes, stream_bytes = unpack(ARGV, 1, 9)
most, most_bytes, stream_bytes = tonumber(most), tonumber(most_bytes), tonumber(stream_bytes)
-- Versions never fall back, even if the grid lost some: each generation starts above all that came before (P6).
local least = (generation - 1) * 4294967296

-- Returns the index of the first receipt of this request or a later one, and that receipt.
local function find(key, request)
  local low, high, found = 0, redis.call('LLEN', key) - 1, nil
  while low <= high do
    local middle = math.floor((low + high) / 2)
    local receipt = redis.call('LINDEX', key, middle)
    if tonumber(string.match(receipt, '^%d+ (%d+)')) < request then
      low = middle + 1
    else
      high, found = middle - 1, receipt
    end
  end
  return low, found
end

-- Stores what the stream has already.
local function write(values, key, fields, receipts, sizes)
  local count = #receipts
  if count == 0 then
    return
  end
  -- Of topics that were not created there is a receipt and nothing else.
  if #fields > 0 then
    redis.call('HSET', values, unpack(fields))
    write_sizes(sizes)
  end
  local kept = redis.call('RPUSH', key, unpack(receipts))
  redis.call('PEXPIRE', key, life)
  -- Forgetting in bunches costs a fraction of forgetting one by one; a settled receipt that is still here is not used.
  if kept % 16 < count then
    local forget = math.min(find(key, tonumber(settled) + 1), kept - 1)
    if forget > 0 then
      redis.call('LTRIM', key, forget, -1)
    end
  end
end

-- Publishes in one partition, from ARGV[first] up to ARGV[final]. Returns its result and whether that ends everything.
local function publish(values, stream, key, closed, size, previous, first, final)
  local newest, forgotten = 0, 0
  local last = redis.call('LINDEX', key, -1)
  if last then
    local owner, request, done = string.match(last, '^(%d+) (%d+) %d+ %S+ (%d+)$')
    if tonumber(epoch) < tonumber(owner) then
      return 'fenced'
    end
    newest, forgotten = tonumber(request), tonumber(done)
  elseif redis.call('ZSCORE', closed, hash) then
    return 'fenced'
  end
  if tonumber(ARGV[first]) > newest and tonumber(previous) > newest then
    return 'broken'
  end

  local topics = {}
  for at = first + 1, final, 3 do
    topics[#topics + 1] = ARGV[at]
  end
  local stored = redis.call('HMGET', values, unpack(topics))
  local versions, fields, receipts, result = {}, {}, {}, {''}
  local held, sizes
  local lengths = {}
  local function may_create()
    if most > 0 then
      held = held or redis.call('HLEN', values) - redis.call('HEXISTS', values, '')
    end
    return most == 0 or (most > 0 and held < most)
  end
  -- Returns by how many bytes the partition grows.
  local function growth(number, topic, value)
    local length = lengths[topic] or (stored[number] and value_bytes(stored[number]))
    return length and #value - length or #topic + #value + VALUE_BYTES
  end
  for number, topic in ipairs(topics) do
    local at = first + 3 * (number - 1)
    local request = tonumber(ARGV[at])
    local more = 0
    if request > newest then
      if not sizes then
        local refusal
        sizes, refusal = read_sizes(size, values)
        if not sizes then
          return redis.error_reply(refusal.err), true
        end
      end
      more = growth(number, topic, ARGV[at + 2])
    end
    if request > newest and not stored[number] and not versions[topic] and not may_create() then
      receipts[#receipts + 1] = epoch .. ' ' .. ARGV[at] .. ' 0 - ' .. settled
      newest, forgotten = request, tonumber(settled)
      result[number + 1] = {0, '+'}
    elseif request > newest and more > 0 and most_bytes > 0 and sizes.total + more > most_bytes then
      receipts[#receipts + 1] = epoch .. ' ' .. ARGV[at] .. ' 1 - ' .. settled
      newest, forgotten = request, tonumber(settled)
      result[number + 1] = {1, '+'}
    elseif request > newest then
      local version = versions[topic]
      local is_new = not stored[number] and not version
      if not version then
        local known = stored[number] and string.match(stored[number], '^%d+') or redis.call('HGET', values, '')
        version = math.max(version_of(known), least)
      end
      version = version + 1
      local text = string.format('%.0f', version)
      local value = ARGV[at + 2]
      local event = redis.pcall('XADD', stream, 'MAXLEN', '~', length, generation .. '-*', topic, text .. ' ' .. value)
      if type(event) == 'table' then
        write(values, key, fields, receipts, sizes)
        if string.find(event.err, 'equal or smaller', 1, true) then
          return 'stale', true
        end
        return redis.error_reply(event.err), true
      end
      if string.sub(event, -2) == '-0' then
        -- The marker is missing: the stream was deleted under a running process.
        redis.call('DEL', stream, size)
        return 'emptied', true
      end
      versions[topic], lengths[topic] = version, #value
      sizes.total = sizes.total + more
      count_entry(sizes, stream, event, topic, value, stream_bytes)
      fields[#fields + 1] = topic
      fields[#fields + 1] = text .. ' ' .. event .. ' ' .. value
      receipts[#receipts + 1] = epoch .. ' ' .. ARGV[at] .. ' ' .. text .. ' ' .. event .. ' ' .. settled
      newest, forgotten = request, tonumber(settled)
      if is_new then
        held = held and held + 1
      end
      result[number + 1] = is_new and -version or version
      if result[1] == '' then
        result[1] = event
      end
    else
      local answer = {0, ''}
      if request > forgotten then
        write(values, key, fields, receipts, sizes)
        fields, receipts = {}, {}
        local _, receipt = find(key, request)
        if receipt then
          local done, version, event = string.match(receipt, '^%d+ (%d+) (%d+) (%S+)')
          if done == ARGV[at] then
            answer = {tonumber(version), event}
          end
        end
      end
      result[number + 1] = answer
    end
  end
  write(values, key, fields, receipts, sizes)
  return result
end

local results, at = {}, 10
for number = 1, #KEYS, 5 do
  local values, stream, key, closed, size = unpack(KEYS, number, number + 4)
  local following = at + 2 + 3 * ARGV[at + 1]
  local result, ended = publish(values, stream, key, closed, size, ARGV[at], at + 2, following - 1)
  if ended then
    return result
  end
  results[#results + 1] = result
  at = following
end
return results
