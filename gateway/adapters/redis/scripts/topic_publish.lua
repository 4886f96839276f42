-- Publish values of one session, each exactly once (P5): in each partition in the order of the session's requests.
--
-- Five keys for each partition; on a Redis Cluster there is one, as partitions do not share a slot:
-- KEYS[1] values    hash    topic -> "<version> <generation>-<sequence> <value>"; '' -> a version that versions of new
--                           topics must be above, as they may be those of topics that were removed and forgotten; and
--                           bytes that the partition holds; sizes.lua
-- KEYS[2] stream    stream  entries [topic, "<version> <value>"]
-- KEYS[3] receipts  list    of the session in this partition: "<epoch> <request> <version> <event> <settled>", by request
-- KEYS[4] closed    zset    short hashes of ended sessions that published here -> when to forget them (ms)
-- KEYS[5] sizes     hash    bytes of the older parts of the stream; sizes.lua
-- ARGV[1] epoch of the session's owner
-- ARGV[2] settled: receipts up to this request may be forgotten
-- ARGV[3] generation that the caller has adopted
-- ARGV[4] entries to keep in a stream, about
-- ARGV[5] short hash of the session's id
-- ARGV[6] milliseconds for which the receipts outlive this publish, or its repetition, if the end of the session does not
--         remove them
-- ARGV[7] topics that a partition may hold for a new one to be created; 0 for no limit, -1 to create none
-- ARGV[8] bytes of values that a partition may hold for one to grow or to be added; 0 for no limit
-- ARGV[9] bytes to keep in a stream, about; 0 for no limit
-- ARGV[10..] for each partition: previous, the request before the first that was sent to this partition and is not
--         answered yet, 0 if none; bytes that the caller has sent for the stream and not told yet, mostly 0, as it tells
--         them now and then; how many publishes follow; and of each of these: request, topic, and value as JSON text
-- Of topics with history the keys of their logs follow the five, and what logs.lua says the publishes of each partition.
-- Of values that end, a partition has two keys more before all others, endings and, as KEYS[7], ends of endings.lua; and in
-- front of all arguments is what clock.lua asks for, and after how many milliseconds they end.
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
-- Needs sizes.lua, endings.lua (then also clock.lua) or no_endings.lua, and logs.lua or no_logs.lua: a publish without history is the same commands as if there were none. A
-- topic whose history would be one too many is refused as one that is not created. A publish that makes a value no larger is never refused for bytes.
-- What many publishes have in common is looked at once: half of what a publish would cost alone.
local ends_at = append_ending and string.format('%.0f', now + table.remove(ARGV, 1))
local epoch, settled, generation, length, hash, life, most, most_bytes, stream_bytes = unpack(ARGV, 1, 9)
-- Versions never fall back, even if the grid lost some: each generation starts above all that came before (P6).
local least = (generation - 1) * 4294967296
local ids = generation .. '-*'

-- Returns the index of the first receipt of this request or a later one, of so many, and that receipt.
local function find(key, request, count)
  local low, high, found = 0, count - 1, nil
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

-- Stores what the stream has already: so many fields, receipts, and what the values have for the empty topic, if that
-- changes.
local function write(values, key, fields, written, receipts, received, floor, logs)
  if received == 0 then
    return
  end
  if floor then
    fields[written + 1], fields[written + 2] = '', floor
    written = written + 2
  end
  -- Of topics that were not created there is a receipt and nothing else.
  if written > 0 then
    redis.call('HSET', values, unpack(fields, 1, written))
    if logs then
      write_logs(logs)
    end
  end
  local kept = redis.call('RPUSH', key, unpack(receipts, 1, received))
  redis.call('PEXPIRE', key, life)
  -- Forgetting in bunches costs a fraction of forgetting one by one; a settled receipt that is still here is not used.
  if kept % 16 < received then
    local forget = math.min(find(key, tonumber(settled) + 1, kept), kept - 1)
    if forget > 0 then
      redis.call('LTRIM', key, forget, -1)
    end
  end
end

-- Publishes in one partition, from ARGV[first] up to ARGV[final]. Returns its result, whether that ends everything, and
-- the last event.
-- Reading numbers, and tables that grow, are much of what Lua costs here: what is seldom compared stays text, and tables
-- begin with places for one publish.
local function publish(values, stream, key, closed, sizes, previous, first, final, logs, endings, ends)
  local newest, newest_text, forgotten = 0, '0', '0'
  local last = redis.call('LINDEX', key, -1)
  if last then
    local owner
    owner, newest_text, forgotten = string.match(last, '^(%d+) (%d+) %d+ %S+ (%d+)$')
    if owner ~= epoch and tonumber(epoch) < tonumber(owner) then
      return 'fenced'
    end
    newest = tonumber(newest_text)
  elseif redis.call('ZSCORE', closed, hash) then
    return 'fenced'
  end
  if previous ~= '0' and previous ~= newest_text and tonumber(ARGV[first]) > newest and tonumber(previous) > newest then
    return 'broken'
  end

  local asked, count = {ARGV[first + 1], ''}, 1
  for at = first + 4, final, 3 do
    count = count + 1
    asked[count] = ARGV[at]
  end
  asked[count + 1] = ''
  local stored = redis.call('HMGET', values, unpack(asked))
  local fields, written, receipts, received, result = {'', '', '', ''}, 0, {''}, 0, {'', 0}
  local versions, lengths, held, floor, total, grown, newest_event, repeated
  if count > 1 then
    versions, lengths = {}, {}
  end
  -- Which log a topic has, where some are published more than once; else those of the publishes, in order.
  local of_topic
  if logs and logs.count < count then
    of_topic = {}
    local distinct = 0
    for number = 1, count do
      if not of_topic[asked[number]] then
        distinct = distinct + 1
        of_topic[asked[number]] = distinct
      end
    end
  end
  for number = 1, count do
    local topic, at = asked[number], first + 3 * (number - 1)
    local request = tonumber(ARGV[at])
    if request > newest then
      local value, version, old = ARGV[at + 2], nil, nil
      if versions then
        version, old = versions[topic], lengths[topic]
      end
      local is_new = not version and not stored[number]
      if not version and not is_new then
        version, old = read_value(stored[number])
      end
      -- By how many bytes the partition grows.
      local more = old and #value - old or #topic + #value + VALUE_BYTES
      local refused, refusal
      if not total and (more ~= 0 or not version) then
        floor, total = read_floor(stored[count + 1])
        if not total then
          -- What this step has published already has not changed in size.
          total, refusal = count_values(sizes, values)
          grown = true
        end
      end
      if is_new and most ~= '0' then
        held = held or redis.call('HLEN', values) - (stored[count + 1] and 1 or 0)
        refused = held >= tonumber(most) and '0'
      end
      if total and more > 0 and not refused and most_bytes ~= '0' and total + more > tonumber(most_bytes) then
        if redis.call('HEXISTS', sizes, 'values') == 0 then
          -- Somebody deleted sizes, to have the values counted anew.
          write(values, key, fields, written, receipts, received, grown and write_floor(floor, total), logs)
          total, refusal = count_values(sizes, values)
          written, received, grown = 0, 0, true
        end
        refused = total and total + more > tonumber(most_bytes) and '1'
      end
      local log, before = logs and (of_topic and of_topic[topic] or number), nil
      if log and not refused and not refusal then
        before = begin_log(logs, topic, log, string.match(stored[number] or '', '^%d+ (%d+%-%d+)'))
        refused = not before and '0'
      end
      if refusal then
        return redis.error_reply(refusal.err), true
      elseif refused then
        received = received + 1
        receipts[received] = epoch .. ' ' .. ARGV[at] .. ' ' .. refused .. ' - ' .. settled
        result[number + 1] = {tonumber(refused), '+'}
      else
        version = math.max(version or tonumber(floor), least) + 1
        local text = string.format('%.0f', version)
        local entry = text .. ' ' .. value
        local event = ends_at and append_ending(stream, length, generation, topic, entry, ends_at)
          or redis.pcall('XADD', stream, 'MAXLEN', '~', length, ids, topic, entry)
        if type(event) == 'table' then
          write(values, key, fields, written, receipts, received, grown and write_floor(floor, total), logs)
          if string.find(event.err, 'equal or smaller', 1, true) then
            return 'stale', true
          end
          return redis.error_reply(event.err), true
        end
        if string.sub(event, -2) == '-0' then
          -- The marker is missing: the stream was deleted under a running process.
          redis.call('DEL', stream, sizes)
          return 'emptied', true
        end
        newest_event = event
        if ends_at then
          note_ending(endings, ends, topic, event, ends_at)
        end
        if of_topic then
          keep(logs, log, before, event, entry)
        elseif log then
          write_log(logs, log, before, event, entry)
        end
        if more ~= 0 then
          total, grown = total + more, true
        end
        if versions then
          versions[topic], lengths[topic] = version, #value
        end
        fields[written + 1], fields[written + 2] = topic, text .. ' ' .. event .. ' ' .. value
        written, received = written + 2, received + 1
        receipts[received] = epoch .. ' ' .. ARGV[at] .. ' ' .. text .. ' ' .. event .. ' ' .. settled
        if is_new then
          held = held and held + 1
        end
        result[number + 1] = is_new and -version or version
        if result[1] == '' then
          result[1] = event
        end
      end
      newest, forgotten = request, settled
    else
      repeated = true
      local answer = {0, ''}
      if request > tonumber(forgotten) then
        write(values, key, fields, written, receipts, received, grown and write_floor(floor, total), logs)
        written, received, grown = 0, 0, false
        local _, receipt = find(key, request, redis.call('LLEN', key))
        if receipt then
          local done, version, event = string.match(receipt, '^%d+ (%d+) (%d+) (%S+)')
          -- Other kinds of requests leave no event, and, of what was refused, another version.
          if done == ARGV[at] and string.find(event, '-', 1, true) and (event ~= '-' or version ~= '2') then
            answer = {tonumber(version), event}
          end
        end
      end
      result[number + 1] = answer
    end
  end
  write(values, key, fields, written, receipts, received, grown and write_floor(floor, total), logs)
  if repeated then
    -- Whoever repeats may do so again. What has been answered is true also where Redis refuses to write.
    redis.pcall('PEXPIRE', key, life)
  end
  return result, false, newest_event
end

local results, at, number = {}, 10, 1
while number <= #KEYS do
  local values, stream, key, closed, sizes = unpack(KEYS, number, number + 4)
  local following, logs = at + 3 + 3 * ARGV[at + 2], nil
  local final = following - 1
  local endings, ends
  number = number + 5
  if ends_at then
    endings, ends = KEYS[number], KEYS[number + 1]
    number = number + 2
  end
  if read_logs then
    logs, number, following = read_logs(number, following)
  end
  local result, ended, event = publish(values, stream, key, closed, sizes, ARGV[at], at + 3, final, logs, endings, ends)
  if ARGV[at + 1] ~= '0' and result ~= 'emptied' then
    count_entries(sizes, stream, values, event, ARGV[at + 1], tonumber(stream_bytes))
  end
  if ended then
    return result
  end
  results[#results + 1] = result
  at = following
end
return results
