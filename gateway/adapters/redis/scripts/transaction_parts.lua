-- Precedes the steps that execute transactions: what one does in each topic partition, its parts. Needs clock.lua, sizes.lua,
-- endings.lua, logs.lua and queue.lua.
--
-- ARGV[1..8] transactions.lua
-- ARGV[9] turn
-- ARGV[10] entries to keep in a stream, about
-- ARGV[11] bytes to keep in a stream, about; 0 for no limit
-- ARGV[12] queues that a partition may hold
-- Each part has these keys: values, stream and sizes of topic_publish.lua; endings and ends of endings.lua; logs, marks and logs of topics with history of
-- logs.lua; and for each queue the twelve of queue.lua. And these arguments: how many publishes, and of each topic, value,
-- most topics and most bytes as in topic_publish.lua, and after how many ms it ends, 0 for never; bytes of the entries of the stream that they become; what logs.lua
-- asks for; how many queues, and of each its name, its bounds as in queue_send.lua or '', how many steps, and of each step
--   's', delay (ms), life (ms, 0 for ever), bytes of headers, headers and value, of a message that is sent;
--   'a', 'd' or 'r', delay (ms), tag in 16 digits, id, '', of one that is accepted, rejected or released
--
-- A transaction that is being prepared holds what it settles and what it sends: as "<session>~<number> <tag or s<place>> <id>"
-- among what is held. Nobody is given these, and the end of the session leaves them alone.
--
-- Invariant: what was reserved can be executed, and can be undone, and both leave nothing of the transaction. A message is
-- in one place all the time (P15).
local LEAST = (tonumber(ARGV[2]) - 1) * 4294967296
local NAME = ARGV[4] .. '~' .. ARGV[8]

local function enter(each)
  META, MESSAGES, READY, TIMERS, HELD, CONSUMERS, IDLE, DEAD, NOTES, QUEUES, DUE, DELIVERIES = unpack(KEYS, each.key, each.key + 11)
  queue, consumers, touched, timed, unfinished = each.name, {}, {}, false, false
  return open(each.bounds ~= '' and each.bounds or nil)
end

-- Reads a part from KEYS[key] and ARGV[at] on; returns it, and the places behind.
local function read_part(key, at)
  local part = {values = KEYS[key], stream = KEYS[key + 1], sizes = KEYS[key + 2], publishes = {}, queues = {}}
  part.endings, part.ends = KEYS[key + 3], KEYS[key + 4]
  for number = 1, tonumber(ARGV[at]) do
    local first = at + 1 + 5 * (number - 1)
    part.publishes[number] = {unpack(ARGV, first, first + 4)}
  end
  at = at + 1 + 5 * #part.publishes
  part.appended = ARGV[at]
  part.logs, key, at = read_names(key + 5, at + 1)
  local count = tonumber(ARGV[at])
  at = at + 1
  for number = 1, count do
    local each = {key = key, name = ARGV[at], bounds = ARGV[at + 1], steps = {}}
    for place = 1, tonumber(ARGV[at + 2]) do
      local first = at + 3 + 5 * (place - 1)
      each.steps[place] = {unpack(ARGV, first, first + 4)}
    end
    part.queues[number] = each
    key, at = key + 12, at + 3 + 5 * #each.steps
  end
  return part, key, at
end

-- Tells why the streams of a part cannot be appended to; nil if they can.
local function check_stream(part)
  if #part.publishes == 0 then
    return nil
  end
  local last = redis.call('XREVRANGE', part.stream, '+', '-', 'COUNT', 1)[1]
  if not last then
    return 'emptied'
  end
  return tonumber(string.match(last[1], '^%d+')) ~= generation and 'stale' or nil
end

-- Tells why what a part publishes has no room; nil if it has.
local function check_room(part)
  if #part.publishes == 0 then
    return nil
  end
  local stored = redis.call('HGET', part.values, '')
  local _, total = read_floor(stored)
  total = total or count_values(part.sizes, part.values)
  local held = redis.call('HLEN', part.values) - (stored and 1 or 0)
  local logs = redis.call('HLEN', part.logs.logs)
  local known, kept = {}, {}
  for _, each in ipairs(part.publishes) do
    local topic, value, most, most_bytes = unpack(each)
    local old = known[topic]
    if old == nil then
      local found = redis.call('HGET', part.values, topic)
      if found then
        local _, size = read_value(found)
        old = size
      else
        held = held + 1
        if most ~= '0' and held > tonumber(most) then
          return 'topics'
        end
      end
    end
    local more = old and #value - old or #topic + #value + VALUE_BYTES
    if total then
      total = total + more
      if more > 0 and most_bytes ~= '0' and total > tonumber(most_bytes) then
        return 'bytes'
      end
    end
    known[topic] = #value
    if part.logs.number[topic] and not kept[topic] then
      kept[topic] = true
      if redis.call('HEXISTS', part.logs.logs, topic) == 0 then
        logs = logs + 1
        if most_logs > 0 and logs > most_logs then
          return 'topics'
        end
      end
    end
  end
  return nil
end

-- Holds what a transaction settles in a queue, and what it sends to it; tells why it cannot. Nobody is given anything yet, so
-- that what is released keeps its place.
local function reserve(each)
  if not enter(each) then
    return 'stale'
  end
  local session, why = ARGV[4], nil
  local spare, spare_bytes = 0, 0
  for _, step in ipairs(each.steps) do
    local kind, _, tag, id = unpack(step)
    if kind ~= 's' and not why then
      local member = session .. ' ' .. tag .. ' ' .. id
      if consumer(session) and redis.call('ZSCORE', HELD, member) then
        take_away(member, session)
        redis.call('ZADD', HELD, 0, NAME .. ' ' .. tag .. ' ' .. id)
        if kind == 'a' then
          spare, spare_bytes = spare + 1, spare_bytes + size_of(id)
        end
      else
        why = 'not_held'
      end
    end
  end
  fire()
  local count = redis.call('HLEN', MESSAGES) - redis.call('ZCARD', DEAD) - spare
  local dropped, freed = 0, 0
  local may_exist = known or redis.call('HLEN', QUEUES) - 1 < tonumber(ARGV[12])
  for place, step in ipairs(each.steps) do
    local kind, _, life, headers, content = unpack(step)
    if kind == 's' and is_undeclared() then
      why = why or 'absent'
    elseif kind == 's' and not why then
      local ends = tonumber(life) > 0 and text(now + life) or '0'
      local record = text(now) .. ' ' .. ends .. ' ' .. headers .. ' ' .. content
      local size = #record + MESSAGE_BYTES
      local over, over_bytes = count + 1 - bounds[1], meta[1] - spare_bytes + size - bounds[2]
      if bounds[3] == 1 and size <= bounds[2] then
        dropped, freed = count_oldest(dropped, freed, over, over_bytes)
      elseif over > 0 or over_bytes > 0 then
        dropped = nil
      end
      if may_exist and dropped then
        newest_id = newest_id + 1
        local id = text(newest_id)
        redis.call('HSET', MESSAGES, id, record)
        redis.call('ZADD', HELD, 0, NAME .. ' ' .. string.format('s%015d', place) .. ' ' .. id)
        count, meta[1] = count + 1, meta[1] + size
      else
        why = 'queue_full'
      end
    end
  end
  close()
  return why
end

-- Lists what the transaction holds of the queue that was entered: as "<tag or s<place>>" -> id.
local function list_reserved()
  local found = {}
  for _, member in ipairs(redis.call('ZRANGEBYLEX', HELD, '[' .. NAME .. ' ', '(' .. NAME .. '!')) do
    local tag, id = string.match(member, ' (%S+) (%d+)$')
    found[tag] = id
    redis.call('ZREM', HELD, member)
  end
  return found
end

-- Gives back what was held, and takes back what was sent; harmless if there is nothing. Where the transaction is
-- forgotten, its client may have been told that it holds nothing any more: then it is given again.
local function undo(each, forgotten)
  if not enter(each) then
    return 'stale'
  end
  local session = ARGV[4]
  for tag, id in pairs(list_reserved()) do
    if string.sub(tag, 1, 1) == 's' then
      meta[1] = meta[1] - size_of(id)
      forget(id)
    else
      local holder = not forgotten and consumer(session)
      if holder then
        local member = session .. ' ' .. tag .. ' ' .. id
        redis.call('ZADD', HELD, 0, member)
        holder[3] = holder[3] + 1
        touched[session] = holder
        if bounds[5] > 0 then
          set_timer('a' .. member, now + bounds[5])
        end
      else
        give_back(id, false, 0)
      end
    end
  end
  fire()
  assign({})
  close()
  return nil
end

-- Executes what was reserved in a queue. What has no room then, as it is full of what others hold, has it nevertheless;
-- only what is older than what was sent is dropped for it.
local function execute(each)
  enter(each)
  local found = list_reserved()
  local holder, first = consumer(ARGV[4]), nil
  for place, step in ipairs(each.steps) do
    local kind, delay = step[1], tonumber(step[2])
    local id = found[kind == 's' and string.format('s%015d', place) or step[3]]
    -- Of a grid that has lost writes it may be gone.
    if id and redis.call('HEXISTS', MESSAGES, id) == 1 then
      if kind == 's' then
        first = first or tonumber(id)
        meta.sent = meta.sent + 1
        local expires = tonumber(string.match(redis.call('HGET', MESSAGES, id), '^%d+ (%d+)'))
        if expires > 0 then
          set_timer('e' .. id, expires)
        end
        if delay > 0 then
          set_timer('r' .. id, now + delay)
        else
          redis.call('ZADD', READY, id, id)
        end
      elseif kind == 'a' then
        meta[1] = meta[1] - size_of(id)
        drop_timer('e' .. id)
        forget(id)
      elseif kind == 'd' then
        bury(id, (failures(id)), 'rejected')
      else
        give_back(id, true, delay)
      end
      if kind ~= 's' and holder then
        holder[4] = math.max(holder[4], tonumber(step[3]))
        touched[ARGV[4]] = holder
      end
    end
  end
  fire()
  assign({})
  while first and bounds[3] == 1 do
    local count = redis.call('HLEN', MESSAGES) - redis.call('ZCARD', DEAD)
    local oldest = (count > bounds[1] or meta[1] > bounds[2]) and redis.call('ZRANGE', READY, 0, 0)[1]
    if not oldest or tonumber(oldest) >= first then
      break
    end
    drop(oldest)
  end
  close()
end

-- Publishes what a part has to publish; there is room, or was when it was prepared.
local function publish(part)
  if #part.publishes == 0 then
    return
  end
  local floor, total = read_floor(redis.call('HGET', part.values, ''))
  total = total or count_values(part.sizes, part.values)
  local event
  for _, each in ipairs(part.publishes) do
    local topic, value, life = each[1], each[2], each[5]
    local stored = redis.call('HGET', part.values, topic)
    local version, old
    if stored then
      version, old = read_value(stored)
    end
    local shown = string.format('%.0f', math.max(version or tonumber(floor), LEAST) + 1)
    local entry = shown .. ' ' .. value
    if life == '0' then
      event = redis.call('XADD', part.stream, 'MAXLEN', '~', ARGV[10], ARGV[2] .. '-*', topic, entry)
    else
      local ends_at = string.format('%.0f', now + life)
      event = append_ending(part.stream, ARGV[10], ARGV[2], topic, entry, ends_at)
      note_ending(part.endings, part.ends, topic, event, ends_at)
    end
    local log = part.logs.number[topic]
    if log then
      local before = begin_log(part.logs, topic, log, stored and string.match(stored, '^%d+ (%d+%-%d+)'))
      if before then
        keep(part.logs, log, before, event, entry)
      end
    end
    redis.call('HSET', part.values, topic, shown .. ' ' .. event .. ' ' .. value)
    if total then
      total = total + (old and #value - old or #topic + #value + VALUE_BYTES)
    end
  end
  if total then
    redis.call('HSET', part.values, '', write_floor(floor, total))
  end
  write_logs(part.logs)
  count_entries(part.sizes, part.stream, part.values, event, part.appended, tonumber(ARGV[11]))
end

local function undo_part(part, forgotten)
  local why
  for _, each in ipairs(part.queues) do
    why = undo(each, forgotten) or why
  end
  return why
end

-- Prepares a part; tells why it cannot, and then nothing of it is reserved.
local function prepare_part(part)
  local why = check_stream(part) or check_room(part)
  for _, each in ipairs(part.queues) do
    why = why or reserve(each)
  end
  if why then
    undo_part(part)
  end
  return why
end

local function execute_part(part)
  publish(part)
  for _, each in ipairs(part.queues) do
    execute(each)
  end
end
