-- What a topic partition remembers of events that cross between clusters. This precedes the steps that stamp or take them.
--
-- origins  hash  topic -> "<mark>|<cluster> <ranges>;…": the mark of its newest stamped value, "<place> <time> <cluster>
--                <origin cluster> <origin version> <arrival> <path>", '' if there is none; and which versions its history
--                has of those that each cluster has published, "<first>-<last> …"
--                '' -> "<link> <term>;…": of the last carrier of each link, the latest one last
--                '/times' -> "<place> <time>;…": how far the stream had come at some times (ms); no topic has this name
--
-- A place is "<generation>-<sequence>" in the stream of the partition. A path is places separated by commas, '-' if there
-- are none. The rules are those of gateway/core/zones/stamps.py and stream_times.py, and so are the numbers.
local MOST_RANGES = 16
local TIMES, MOST_TIMES = '/times', 128

-- Reads what is remembered of a topic.
local function read_origins(stored)
  local mark, seen = string.match(stored or '', '^([^|]*)|(.*)$')
  local place, time, cluster = string.match(mark or '', '^(%d+%-%d+) (%d+) (%S+) %S+ %d+ %S+ %S+$')
  return {mark = place and mark or '', place = place, time = tonumber(time), cluster = cluster, seen = seen or ''}
end

-- Reads what is remembered of topics. What another program has put in the place of the hash is deleted.
local function read_all(origins, topics)
  local found = redis.pcall('HMGET', origins, unpack(topics))
  if found.err then
    if string.find(found.err, 'WRONGTYPE', 1, true) then
      redis.call('DEL', origins)
    end
    found = redis.call('HMGET', origins, unpack(topics))
  end
  return found
end

-- Tells whether a place is before another one.
local function is_before(place, other)
  local generation, sequence = string.match(place, '^(%d+)-(%d+)$')
  local later, number = string.match(other, '^(%d+)-(%d+)$')
  generation, later = tonumber(generation), tonumber(later)
  return generation < later or (generation == later and tonumber(sequence) < tonumber(number))
end

-- Compares texts by their bytes, as every cluster has to do it. Lua itself goes by the locale of Redis.
local function is_above(text, other)
  for at = 1, math.min(#text, #other) do
    local byte, against = string.byte(text, at), string.byte(other, at)
    if byte ~= against then
      return byte > against
    end
  end
  return #text > #other
end

-- Tells whether a stamp is above that of a mark.
local function is_newer(known, time, cluster)
  return not known.time or time > known.time or (time == known.time and is_above(cluster, known.cluster))
end

-- Reads how far the stream had come at which times: at first only the place of the last note.
local function read_times(stored)
  stored = stored or ''
  return {stored = stored, newest = string.match(string.sub(stored, -64), '(%d+%-%d+) %d+;$')}
end

local function read_notes(times)
  if not times.notes then
    times.notes = {}
    for place, time in string.gmatch(times.stored, '(%d+%-%d+) (%d+);') do
      times.notes[#times.notes + 1] = {place, tonumber(time)}
    end
  end
  return times.notes
end

-- Tells the time by which an event had been published, now at the latest.
local function time_of(times, place, now)
  if not times.newest or is_before(times.newest, place) then
    return now
  end
  local notes = read_notes(times)
  local low, high = 1, #notes
  while low < high do
    local middle = math.floor((low + high) / 2)
    if is_before(notes[middle][1], place) then
      low = middle + 1
    else
      high = middle
    end
  end
  return notes[low][2]
end

local function set_mark(known, place, time, cluster, rest)
  known.place, known.time, known.cluster = place, time, cluster
  known.mark = place .. ' ' .. string.format('%.0f', time) .. ' ' .. cluster .. ' ' .. rest
end

-- Takes a version into what a history has of a cluster. Returns the ranges then, or nil if the version is there already,
-- or too far behind to be known.
local function take_version(text, version)
  local ranges = {}
  for first, last in string.gmatch(text, '(%d+)%-(%d+)') do
    ranges[#ranges + 1] = {tonumber(first), tonumber(last)}
  end
  local at = 1
  while at <= #ranges and ranges[at][2] < version do
    at = at + 1
  end
  if at <= #ranges and ranges[at][1] <= version then
    return nil
  end
  if #ranges == MOST_RANGES and version < ranges[1][1] then
    return nil
  end
  local before, after = ranges[at - 1], ranges[at]
  if before and before[2] == version - 1 then
    before[2] = version
    if after and after[1] == version + 1 then
      before[2] = after[2]
      table.remove(ranges, at)
    end
  elseif after and after[1] == version + 1 then
    after[1] = version
  else
    table.insert(ranges, at, {version, version})
  end
  if #ranges > MOST_RANGES then
    ranges[2][1] = ranges[1][1]
    table.remove(ranges, 1)
  end
  local kept = {}
  for number = 1, #ranges do
    kept[number] = string.format('%.0f-%.0f', ranges[number][1], ranges[number][2])
  end
  return table.concat(kept, ' ')
end

-- Finds what is seen of a cluster. Returns its ranges, what is seen of the others, and of how many clusters something is.
local function find_seen(seen, cluster)
  local others, ranges, count = {}, nil, 0
  for other, text in string.gmatch(seen, '(%S+) ([^;]+);') do
    count = count + 1
    if other == cluster then
      ranges = text
    else
      others[#others + 1] = other .. ' ' .. text .. ';'
    end
  end
  return ranges, table.concat(others), count
end

-- Tells the place of the last entry of a stream, if it is of this generation; else what the caller has to do.
local function last_place(stream, generation)
  local last = redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)[1]
  if not last then
    return nil, 'emptied'
  end
  local found = tonumber(string.match(last[1], '^%d+'))
  if found ~= tonumber(generation) then
    return nil, found > tonumber(generation) and 'stale' or 'emptied'
  end
  return tonumber(string.match(last[1], '%d+$'))
end
