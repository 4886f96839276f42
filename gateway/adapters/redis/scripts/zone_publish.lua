-- Take events of other clusters, each once (Z1), and of values the newest (Z6), in one topic partition.
--
-- KEYS[1] values   hash    topic -> "<version> <generation>-<sequence> <value>"; '' -> see topic_publish and sizes.lua
-- KEYS[2] stream   stream  entries [topic, "<version> <value>", "event", <its own id>, "zone", "<arrival> <origin cluster>
--                          <origin version> <time> <cluster> <path>"]; time and cluster are those of the stamp, '-' if
--                          there is none
-- KEYS[3] removed  zset    removed topic -> when to forget it (ms)
-- KEYS[4] sizes    hash    bytes of the stream; sizes.lua
-- KEYS[5] origins  hash    topic -> see origins.lua
-- ARGV[1] generation that the caller has adopted
-- ARGV[2] entries to keep in the stream, about
-- ARGV[3] bytes to keep in the stream, about; 0 for no limit
-- ARGV[4] topics that the partition may hold for a new one to be created; 0 for no limit, -1 to create none
-- ARGV[5] bytes of values that it may hold for one to grow or to be added; 0 for no limit
-- ARGV[6] how long to remember a removal (ms)
-- ARGV[7] link by which they came
-- ARGV[8] term of who has it
-- ARGV[9] most links of which the term is remembered
-- ARGV[10] most clusters of which a history remembers what it has
-- ARGV[11] most removals to forget in this step
-- ARGV[12] id of this cluster
-- ARGV[13] how many events follow, and of each: topic; value as JSON text, '' for a removal; origin cluster and version;
--         time and cluster of the stamp, '-' if there is none; arrival; path; '1' if it is told again else '0'; and '1' if
--         the topic keeps history here, else '0'
-- Of topics with history the keys and arguments that logs.lua says follow.
-- Result  for each event {version, place, '1' if the topic is new else '0'}, or why it was not taken: 'duplicate',
--         'older', 'stale', 'topics', 'bytes', 'origins'; or, instead of all, 'generation' if the grid is of another one,
--         or 'emptied' as in topic_publish, or an error if Redis refuses to write
--
-- Invariant: a history has each event of a cluster at most once; the stamps of the values that a topic gets rise, where one
-- of this cluster that was not stamped yet counts with the stamp that it would get. What
-- comes from an earlier carrier than what came before by the same link is refused. An entry says itself how it came, and
-- older releases read it as that of a restored value, which is in its place.
-- Needs clock.lua, sizes.lua, removals.lua, origins.lua, and logs.lua or no_logs.lua.
local time = redis.call('TIME')
local clock_now = time[1] * 1000 + math.floor(time[2] / 1000)
local generation, length, stream_bytes, most, most_bytes, keep_removal = unpack(ARGV, 1, 6)
local link, term, most_links, most_origins = unpack(ARGV, 7, 10)
local here, count, first = ARGV[12], tonumber(ARGV[13]), 14
local least = (generation - 1) * 4294967296
local values, stream, removed, sizes, origins = unpack(KEYS, 1, 5)

local sequence, why = last_place(stream, generation)
if why then
  return why == 'stale' and 'generation' or why
end

local asked = {''}
for number = 1, count do
  asked[number + 1] = ARGV[first + 10 * (number - 1)]
end
asked[count + 2] = TIMES
local remembered = read_all(origins, asked)
local times = read_times(remembered[count + 2])
asked[1], asked[count + 2] = nil, ''
local stored = redis.call('HMGET', values, unpack(asked, 2, count + 2))

-- The terms of links: of this one it stands last.
local terms, links = {}, 0
local known_term = 0
for other, number in string.gmatch(remembered[1] or '', '(%S+) (%d+);') do
  if other == link then
    known_term = tonumber(number)
  else
    terms[#terms + 1] = other .. ' ' .. number .. ';'
  end
end
local result = {}
if tonumber(term) < known_term then
  for number = 1, count do
    result[number] = 'stale'
  end
  return result
end
while #terms >= tonumber(most_links) do
  table.remove(terms, 1)
end
terms[#terms + 1] = link .. ' ' .. term .. ';'

local logs
if read_names then
  logs = read_names(6, first + 10 * count)
end
local floor, total = read_floor(stored[count + 1])
if not total then
  local refusal
  total, refusal = count_values(sizes, values)
  if not total then
    return redis.error_reply(refusal.err)
  end
end
local held = most ~= '0' and redis.call('HLEN', values) - (stored[count + 1] and 1 or 0)
local topics, fields, written, appended, newest = {}, {}, 0, 0, nil

for number = 1, count do
  local at = first + 10 * (number - 1)
  local topic, value, cluster, origin_version, stamp, stamper, arrival, path, again, logged = unpack(ARGV, at, at + 9)
  local known = topics[topic]
  if not known then
    known = read_origins(remembered[number + 1])
    known.is_new = not stored[number]
    if not known.is_new then
      known.version, known.bytes = read_value(stored[number])
      known.event = string.match(stored[number], '^%d+ (%d+%-%d+)')
    end
    topics[topic] = known
  end
  local refused, seen, others, clusters
  local current = known
  if known.event and (not known.place or is_before(known.place, known.event)) then
    local published = time_of(times, known.event, math.floor(now))
    current = {time = known.time and math.max(published, known.time + 1) or published, cluster = here}
  end
  local newer = stamp ~= '-' and is_newer(current, tonumber(stamp), stamper)
  if logged == '0' then
    refused = not newer and 'older'
  elseif again == '1' then
    refused = 'duplicate'
  else
    seen, others, clusters = find_seen(known.seen, cluster)
    if not seen and clusters >= tonumber(most_origins) then
      refused = 'origins'
    else
      seen = take_version(seen or '', tonumber(origin_version))
      refused = not seen and 'duplicate'
    end
  end
  local more = known.bytes and #value - known.bytes or #topic + #value + VALUE_BYTES
  if not refused and known.is_new and held and held >= tonumber(most) then
    refused = 'topics'
  end
  if not refused and more > 0 and most_bytes ~= '0' and total + more > tonumber(most_bytes) then
    refused = 'bytes'
  end
  local log = not refused and logged == '1' and logs and logs.number[topic]
  local before
  if log then
    if value == '' then
      -- A history begins anew with the removal.
      write_logs(logs)
      tools().drop_log(logs, topic, KEYS[logs.keys + log])
      logs.taken[log] = nil
    end
    before = begin_log(logs, topic, log, known.event)
    if not before then
      refused = 'topics'
    end
  end
  if refused then
    result[number] = refused
  else
    local version = math.max(known.version or tonumber(floor), least) + 1
    local text = string.format('%.0f', version)
    local place = generation .. '-' .. string.format('%.0f', sequence + 1)
    local how = arrival .. ' ' .. cluster .. ' ' .. origin_version .. ' ' .. stamp .. ' ' .. stamper .. ' ' .. path
    local entry = redis.pcall(
      'XADD', stream, 'MAXLEN', '~', length, place, topic, text .. ' ' .. value, 'event', place, 'zone', how
    )
    if type(entry) == 'table' then
      -- What was taken already is written below; the caller sends all of it again, and that is refused as known.
      if number == 1 then
        return redis.error_reply(entry.err)
      end
      why = entry.err
      break
    end
    sequence, newest = sequence + 1, place
    appended = appended + #topic + #value + #how + ENTRY_BYTES
    if log then
      keep(logs, log, before, place, text .. ' ' .. value)
    end
    if seen then
      known.seen = others .. cluster .. ' ' .. seen .. ';'
    end
    if newer then
      set_mark(known, place, tonumber(stamp), stamper, cluster .. ' ' .. origin_version .. ' ' .. arrival .. ' ' .. path)
    end
    result[number] = {text, place, known.is_new and '1' or '0'}
    if known.is_new and held then
      held = held + 1
    end
    total = total + more
    known.is_new, known.version, known.bytes, known.event, known.changed = false, version, #value, place, true
    fields[written + 1], fields[written + 2] = topic, text .. ' ' .. place .. ' ' .. value
    written = written + 2
    if value == '' then
      redis.call('ZADD', removed, clock_now + keep_removal, topic)
    end
  end
end

local changes = {'', table.concat(terms)}
for topic, known in pairs(topics) do
  if known.changed then
    changes[#changes + 1] = topic
    changes[#changes + 1] = known.mark .. '|' .. known.seen
  end
end
redis.call('HSET', origins, unpack(changes))
if written > 0 then
  redis.call('HSET', values, unpack(fields))
  local lowest, freed = forget_removals(values, removed, origins, clock_now, ARGV[11], floor)
  redis.call('HSET', values, '', write_floor(lowest .. '.0', total - freed))
  count_entries(sizes, stream, values, newest, appended, tonumber(stream_bytes))
  if logs then
    write_logs(logs)
  end
end
if why then
  return redis.error_reply(why)
end
return result
