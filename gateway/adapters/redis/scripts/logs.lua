-- Histories of topics: what the logs of one partition hold, and how they are kept within their limits. This precedes the
-- scripts that write to logs.
--
-- log    stream  one entry for the events of a topic that were published in one step, its id that of the last of them:
--                "<when, in ms> <id of the topic's event before the first of them>" -> "<version> <value>" of the last,
--                then "<sequence>" -> the same of each before it, in order
-- logs   hash    topic -> events * 2^32 + bytes that were appended since its last mark, and 1 once it has a mark
-- marks  hash    topic -> "<id> <events> <bytes>;" of each block of its log that is complete, the oldest first
--                '' -> "<bytes of all complete blocks> <id: no log that was dropped had a newer event>"
--
-- The callers give for each topic with history of a step, behind its other arguments: how many there are, then for each
-- its path, and events * 2^32 + bytes that they have appended and not told yet, mostly 0, as they tell them now and then;
-- if it is not 0, also the events and the bytes to keep. Behind all: when it is by the clock of the grid (ms), most logs
-- of a partition, and most bytes of its logs. Their keys are logs, marks, and log of each topic.
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
local KEPT_BYTES = 64
local clock, most_logs, most_kept = ARGV[#ARGV - 2], tonumber(ARGV[#ARGV - 1]), tonumber(ARGV[#ARGV])

-- Reads what a step is told of the logs of one partition, from KEYS[key] and ARGV[at]; returns these logs, by topic, and
-- the places behind.
local function read_logs(key, at)
  local logs, count = {[''] = {logs = KEYS[key], marks = KEYS[key + 1]}}, tonumber(ARGV[at])
  at = at + 1
  for number = key + 2, key + 1 + count do
    local log, told = {key = KEYS[number]}, ARGV[at + 1]
    logs[ARGV[at]] = log
    if told == '0' then
      at = at + 2
    else
      log.told, log.count, log.bytes = tonumber(told), ARGV[at + 2], ARGV[at + 3]
      at = at + 4
    end
  end
  return logs, key + 2 + count, at
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

-- Begins to write to a log, and counts what the caller tells of it. Returns false if the partition has as many logs as it
-- may, and this is a new one. Of a topic that has no event before, it is asked in any case.
local function begin_log(logs, topic, log, before)
  local all = logs['']
  log.written, log.fields = 0, {'', ''}
  all[#all + 1] = topic
  if before and not log.told then
    log.before = before
    return true
  end
  local told = log.told or 1
  local block = redis.pcall('HINCRBY', all.logs, topic, told)
  if type(block) == 'table' then
    delete_foreign(all.logs, block)
    block = redis.call('HINCRBY', all.logs, topic, told)
  end
  if block == told then
    if most_logs > 0 and redis.call('HLEN', all.logs) > most_logs then
      redis.call('HDEL', all.logs, topic)
      all[#all], log.fields = nil, nil
      return false
    end
    if not before then
      -- A topic of this path may have been removed and forgotten, and its log with it.
      before = string.match(redis.call('HGET', all.marks, '') or '', '^%d+ (%S+)$')
    end
  end
  log.block, log.before = block, before or '0-0'
  return true
end

-- Takes an event of a topic into what will be written to its log.
local function keep(log, event, text)
  local fields, written = log.fields, log.written
  if written > 0 then
    fields[written + 1], fields[written + 2] = string.match(log.last, '%d+$'), fields[2]
  end
  fields[2], log.last, log.written = text, event, written + 2
end

-- Makes what is seldom needed: to define a function takes Lua some time, whether or not it is called.
local function tools()
  -- Cuts the oldest events of a log, up to an id.
  local function cut(log, id)
    local generation, sequence = string.match(id, '^(%d+)-(%d+)$')
    redis.call('XTRIM', log, 'MINID', generation .. '-' .. string.format('%.0f', sequence + 1))
  end

  -- Returns marks, the bytes of them all and the events, from what is stored.
  local function read_marks(stored)
    local marks, bytes, events = {}, 0, 0
    for id, count, size in string.gmatch(stored or '', '(%d+%-%d+) (%d+) (%d+);') do
      marks[#marks + 1] = {id, tonumber(count), tonumber(size)}
      events, bytes = events + count, bytes + size
    end
    return marks, bytes, events
  end

  -- Writes the marks of a log that are left from the first one on, and the bytes of all logs, which have grown.
  local function write_marks(all, topic, marks, first, counted, grown)
    local kept = {}
    for number = first, #marks do
      kept[#kept + 1] = string.format('%s %.0f %.0f;', marks[number][1], marks[number][2], marks[number][3])
    end
    local bytes, edge = string.match(counted or '', '^(%d+) (%S+)$')
    bytes = math.max(0, (tonumber(bytes) or 0) + grown)
    redis.call('HSET', all.marks, topic, table.concat(kept), '', string.format('%.0f ', bytes) .. (edge or '0-0'))
  end

  -- Completes a block of a log, which ends with its last event, and cuts its oldest blocks as far as it must.
  local function complete_block(all, topic, log)
    local found = redis.call('HMGET', all.marks, topic, '')
    local marks, bytes, events = read_marks(found[1])
    local added, size = math.floor(log.block / EVENT), log.block % EVENT
    local before, last, most = bytes, marks[#marks], tonumber(log.bytes)
    local total = (tonumber(string.match(found[2] or '', '^%d+')) or 0) + size
    local over = most_kept > 0 and total > most_kept
    if last and not over and (last[3] + size) * MARKS <= most and (last[2] + added) * MARKS <= tonumber(log.count) then
      last[1], last[2], last[3] = log.last, last[2] + added, last[3] + size
    else
      marks[#marks + 1] = {log.last, added, size}
    end
    bytes, events = bytes + size, events + added
    if #marks == 1 then
      -- Nothing is known of what is before, as this is new, or somebody deleted the marks. Each entry has an event.
      redis.call('XTRIM', log.key, 'MAXLEN', '~', 2 * log.count + UNIT)
    end
    local first = 1
    while first < #marks and (over or bytes > most or events - marks[first][2] >= tonumber(log.count)) do
      bytes, events, first = bytes - marks[first][3], events - marks[first][2], first + 1
    end
    if first > 1 then
      cut(log.key, marks[first - 1][1])
    end
    write_marks(all, topic, marks, first, found[2], bytes - before)
    redis.call('HSET', all.logs, topic, '1')
    log.block = 1
  end

  -- Drops a log. With an edge, which is the last event of its topic, no new log of that path passes for complete.
  local function drop_log(all, topic, key, edge)
    local found = redis.call('HMGET', all.marks, topic, '')
    local _, bytes = read_marks(found[1])
    redis.call('DEL', key)
    redis.call('HDEL', all.logs, topic)
    redis.call('HDEL', all.marks, topic)
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

  return {cut = cut, read_marks = read_marks, write_marks = write_marks, complete_block = complete_block, drop_log = drop_log}
end

-- Writes what was taken into logs; the stream has it already.
local function write_logs(logs)
  local all = logs['']
  for number = 1, #all do
    local topic = all[number]
    local log = logs[topic]
    if log.written > 0 then
      log.fields[1] = clock .. ' ' .. log.before
      local added = redis.pcall('XADD', log.key, log.last, unpack(log.fields, 1, log.written))
      if type(added) == 'table' then
        -- Readers of a log that was deleted will be told that events are missing.
        delete_foreign(log.key, added)
        redis.call('XADD', log.key, log.last, unpack(log.fields, 1, log.written))
      end
      log.before, log.written, log.fields = log.last, 0, {'', ''}
      if log.count and log.block % EVENT >= UNIT then
        tools().complete_block(all, topic, log)
      end
    end
  end
end
