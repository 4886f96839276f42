-- Histories of topics: what the logs of one partition hold, and how they are kept within their limits. This precedes the
-- scripts that write to logs.
--
-- log    stream  one entry for the events of a topic that were published in one step, its id that of the last of them:
--                "<when, in ms> <id of the topic's event before the first of them>" -> "<version> <value>" of the last,
--                then "<sequence>" -> the same of each before it, in order
-- logs   hash    topic -> events * 2^32 + bytes that were appended since its last mark, and 1 once it has a mark
-- marks  hash    topic -> "=<events> <bytes>;" of all its blocks that are complete, then "<id> <events> <bytes>;" of each,
--                the oldest first; of an older version without the first part
--                '' -> "<bytes of all complete blocks> <id: no log that was dropped had a newer event>"
--
-- The callers give for the logs of a partition, behind their other arguments: how many there are, how many of them the
-- caller tells what it has appended, and for each of these its number, events * 2^32 + bytes that were appended and not told
-- yet, and the events and the bytes to keep. Most is told now and then, so mostly there are none. Whoever calls read_names
-- gives the topics before all that, how many first; where it is known which they are, in the order of their logs, that is
-- not needed. Behind all: when it is by the clock of the grid (ms), most logs of a partition, and most bytes of its logs.
-- Their keys are logs, marks, and log of each topic.
--
-- Invariant: whoever knows the event of a topic up to which it has everything can tell from the first entry behind that
-- whether something between was cut (L3). A log has the newest events of its topic without a hole, or says where the hole
-- is. It keeps as many events as it may, a thirty-second and a unit more at most; bytes likewise, at most. All logs of a
-- partition together have no more bytes than they may, and a unit and a step for each log besides (L4, P20). No log is
-- read to keep it so.
local EVENT = 4294967296
-- Bytes after which a block is complete and counted: dozens of usual events.
local UNIT = 4096
-- Blocks are joined to marks of so small a part of what the log may keep.
local MARKS = 32
-- Bytes that the last mark of a log has at most.
local MARK_LENGTH = 80
-- In the place of tables that would stay empty.
local NONE = {}
local clock, most_logs, most_kept = ARGV[#ARGV - 2], tonumber(ARGV[#ARGV - 1]), tonumber(ARGV[#ARGV])

-- Reads what a step is told of the logs of one partition, from KEYS[key] and ARGV[at]; returns these logs, and the places
-- behind. Nothing is made here for each log: that would take longer than its entry.
local function read_logs(key, at)
  local count, tell = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
  local logs = {
    logs = KEYS[key], marks = KEYS[key + 1], keys = key + 1, count = count, told = NONE, block = NONE, taken = NONE
  }
  at = at + 2
  if tell > 0 then
    logs.told, logs.block = {}, {}
    for _ = 1, tell do
      logs.told[tonumber(ARGV[at])] = {tonumber(ARGV[at + 1]), ARGV[at + 2], ARGV[at + 3]}
      at = at + 4
    end
  end
  return logs, key + 2 + count, at
end

-- The same, where the topics precede: logs.number has the number of the log of each.
local function read_names(key, at)
  local numbers, count = {}, tonumber(ARGV[at])
  for number = 1, count do
    numbers[ARGV[at + number]] = number
  end
  local logs, behind
  logs, key, behind = read_logs(key, at + 1 + count)
  logs.number = numbers
  return logs, key, behind
end

-- Deletes a key that refused a write as it holds what another program has put there. Any other refusal is of Redis, at its
-- memory limit above all: whoever repeats the write is told of it, and nothing is lost.
local function delete_foreign(key, refusal)
  for _, sign in ipairs({'WRONGTYPE', 'not an integer', 'overflow', 'equal or smaller', 'exhausted'}) do
    if string.find(refusal.err, sign, 1, true) then
      return redis.call('DEL', key)
    end
  end
end

-- Begins to write to a log, unless that was done, and counts what the caller tells of it. Returns the event that its next
-- entry follows; nothing if the partition has as many logs as it may, and this is a new one. Of a topic that has no event
-- before, and of one whose log was dropped in this step, it is asked in any case: sweeps find a log by its count alone.
local function begin_log(logs, topic, number, before)
  local taken, told = logs.taken[number], logs.told[number]
  if taken then
    return taken[1]
  end
  if before and not told and logs.dropped ~= topic then
    return before
  end
  local added = told and told[1] or 1
  local block = redis.pcall('HINCRBY', logs.logs, topic, added)
  if type(block) == 'table' then
    delete_foreign(logs.logs, block)
    block = redis.call('HINCRBY', logs.logs, topic, added)
  end
  if block == added then
    if most_logs > 0 and redis.call('HLEN', logs.logs) > most_logs then
      redis.call('HDEL', logs.logs, topic)
      return nil
    end
    if not before then
      -- A topic of this path may have been removed and forgotten, and its log with it.
      before = string.match(redis.call('HGET', logs.marks, '') or '', '^%d+ (%S+)$')
    end
  end
  if told and block % EVENT >= UNIT then
    logs.block[number] = {topic, block}
  end
  return before or '0-0'
end

-- Takes an event of a topic, which follows another, into what will be written to its log: for those that several events of a
-- step may go to.
local function keep(logs, number, before, event, text)
  if logs.taken == NONE then
    logs.taken = {}
  end
  local taken = logs.taken[number] or {before, false, false, {}}
  logs.taken[number] = taken
  if taken[2] then
    local earlier = taken[4]
    earlier[#earlier + 1] = string.match(taken[2], '%d+$')
    earlier[#earlier + 1] = taken[3]
  end
  taken[2], taken[3] = event, text
end

-- Makes what is seldom needed: to define a function takes Lua some time, whether or not it is called.
local made
local function tools()
  if made then
    return made
  end
  -- Cuts the oldest events of a log, up to an id.
  local function cut(log, id)
    local generation, sequence = string.match(id, '^(%d+)-(%d+)$')
    redis.call('XTRIM', log, 'MINID', generation .. '-' .. string.format('%.0f', sequence + 1))
  end

  -- Returns the events and bytes of all blocks from what is stored of them, and where the first of them begins.
  local function read_marks(stored)
    local events, bytes, start = string.match(stored, '^=(%d+) (%d+);()')
    if start then
      return tonumber(events), tonumber(bytes), start
    end
    events, bytes = 0, 0
    for count, size in string.gmatch(stored, '%d+%-%d+ (%d+) (%d+);') do
      events, bytes = events + count, bytes + size
    end
    return events, bytes, 1
  end

  -- Returns the mark at a place: id, events, bytes, and where the next begins; nothing behind the last.
  local function read_mark(stored, at)
    return string.match(stored, '^(%d+%-%d+) (%d+) (%d+);()', at)
  end

  -- Writes the marks of a log, and the bytes of all logs, which have grown.
  local function write_marks(all, topic, events, bytes, marks, counted, grown)
    local total, edge = string.match(counted or '', '^(%d+) (%S+)$')
    total = math.max(0, (tonumber(total) or 0) + grown)
    redis.call(
      'HSET', all.marks, topic, string.format('=%.0f %.0f;', events, bytes) .. marks,
      '', string.format('%.0f ', total) .. (edge or '0-0')
    )
  end

  -- Completes a block of a log, which ends with its last event, and cuts its oldest blocks as far as it must. Of the marks,
  -- which may be dozens, it reads the last and those it cuts.
  local function complete_block(logs, number, last)
    local topic, block = unpack(logs.block[number])
    local _, count, most = unpack(logs.told[number])
    count, most = tonumber(count), tonumber(most)
    local found = redis.call('HMGET', logs.marks, topic, '')
    local stored, key = found[1] or '', KEYS[logs.keys + number]
    local events, bytes, at = read_marks(stored)
    local added, size, before = math.floor(block / EVENT), block % EVENT, bytes
    local total = (tonumber(string.match(found[2] or '', '^%d+')) or 0) + size
    local over = most_kept > 0 and total > most_kept
    events, bytes = events + added, bytes + size
    local from, _, _, held, held_size = string.find(stored, '(%d+%-%d+) (%d+) (%d+);$', math.max(at, #stored - MARK_LENGTH))
    if not from then
      -- Nothing is known of what is before, as this is new, or somebody deleted the marks. Each entry has an event.
      redis.call('XTRIM', key, 'MAXLEN', '~', 2 * count + UNIT)
    elseif not over and (held_size + size) * MARKS <= most and (held + added) * MARKS <= count then
      stored, added, size = string.sub(stored, 1, from - 1), held + added, held_size + size
    end
    stored = stored .. last .. string.format(' %.0f %.0f;', added, size)
    local edge
    while true do
      local id, mark_events, mark_bytes, following = read_mark(stored, at)
      if not id or following > #stored or not (over or bytes > most or events - mark_events >= count) then
        break
      end
      edge, at, events, bytes = id, following, events - mark_events, bytes - mark_bytes
    end
    if edge then
      cut(key, edge)
    end
    write_marks(logs, topic, events, bytes, string.sub(stored, at), found[2], bytes - before)
    redis.call('HSET', logs.logs, topic, '1')
  end

  -- Drops a log. With an edge, which is the last event of its topic, no new log of that path passes for complete.
  local function drop_log(all, topic, key, edge)
    local found = redis.call('HMGET', all.marks, topic, '')
    local _, bytes = read_marks(found[1] or '')
    redis.call('DEL', key)
    redis.call('HDEL', all.logs, topic)
    redis.call('HDEL', all.marks, topic)
    all.dropped = topic
    local total, known = string.match(found[2] or '', '^(%d+) (%d+%-%d+)$')
    if edge then
      local generation, sequence = string.match(edge, '^(%d+)-(%d+)$')
      local other, number = string.match(known or '0-0', '^(%d+)-(%d+)$')
      generation, sequence, other, number = tonumber(generation), tonumber(sequence), tonumber(other), tonumber(number)
      if generation > other or generation == other and sequence > number then
        known = edge
      end
    end
    total = math.max(0, (tonumber(total) or 0) - bytes)
    redis.call('HSET', all.marks, '', string.format('%.0f ', total) .. (known or '0-0'))
  end

  made = {
    cut = cut, read_marks = read_marks, read_mark = read_mark, write_marks = write_marks, complete_block = complete_block,
    drop_log = drop_log
  }
  return made
end

-- Writes an event to a log, and events before it that are of the same step; the stream has them already.
local function write_log(logs, number, before, event, text, earlier)
  earlier = earlier or NONE
  local key, head = KEYS[logs.keys + number], clock .. ' ' .. before
  local added = redis.pcall('XADD', key, event, head, text, unpack(earlier))
  if type(added) == 'table' then
    -- Readers of a log that was deleted will be told that events are missing.
    delete_foreign(key, added)
    redis.call('XADD', key, event, head, text, unpack(earlier))
  end
  if logs.block[number] then
    tools().complete_block(logs, number, event)
    logs.block[number] = nil
  end
end

-- Writes what was taken into logs.
local function write_logs(logs)
  for number, taken in pairs(logs.taken) do
    if taken[2] then
      write_log(logs, number, unpack(taken))
      taken[1], taken[2], taken[4] = taken[2], false, {}
    end
  end
end
