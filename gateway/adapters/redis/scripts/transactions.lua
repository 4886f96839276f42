-- Precedes the steps of a session's transactions. Needs clock.lua and session_absent.lua.
--
-- KEYS[1] session     hash    see keys.py
-- KEYS[2] ended       zset    "<reason>:<short hash>" of ended sessions -> when to forget it (ms)
-- KEYS[3] opened      string  seal of the newest generation that was opened here
-- KEYS[4] records     hash    of the session: number of each transaction -> "<state> <turn> <request of its commit> <begun>
--                             <used> <operations> <bytes> <wait> <latest> <outcome> <generation of its begin>", times in ms
-- KEYS[5] operations  hash    of the session: "<number>.<request that asked for it>" -> an operation
-- KEYS[6] overdue     zset    of the partition: session -> when the first of its transactions is to be looked after (ms)
-- ARGV[1] seal of the generation that the caller has adopted
-- ARGV[2] its number, ARGV[3] entries to keep in deliveries: for the steps that queue.lua precedes
-- ARGV[4] session
-- ARGV[5] owner that writes; '' for whoever looks after the partition
-- ARGV[6] epoch of its claim
-- ARGV[7] short hash of the session's id
-- ARGV[8] number of the transaction
--
-- States: 'o' open; 'p' being prepared: it may yet come to either end; 'c' to be executed, 'r' to be rolled back: decided for
-- good; 'd' done: the outcome is kept until the client knows it, '-' of what was executed.
--
-- Invariant: only the stored owner of the session goes on with what is open (P3). From 'p' on anybody may, one at a time:
-- who takes it raises the turn, and nothing is decided by an older turn. 'c' and 'r' exclude each other (P16).
--
-- What is open in a later generation than that of its begin may have lost operations that its client was promised: it is
-- rolled back. From 'p' on it has them all, as this slot loses no write without all those that followed.
-- Milliseconds that a node has for what it has taken; FINISH_SECONDS of gateway/ports/transactions.py.
local FINISH = 10000
local SESSION, ENDED, OPENED, RECORDS, OPERATIONS, OVERDUE = unpack(KEYS, 1, 6)

local function whole(value)
  return string.format('%.0f', value)
end

-- Returns what the caller is to be answered if it may not write; nil if it may.
local function check_owner()
  if ARGV[5] == '' then
    return nil
  end
  local stored = redis.call('HMGET', SESSION, 'owner', 'epoch', 'ended')
  if not stored[1] then
    return absent(ENDED, ARGV[7], OPENED, ARGV[1])
  elseif stored[1] ~= ARGV[5] or stored[2] ~= ARGV[6] then
    return 'fenced'
  elseif stored[3] then
    return {'gone', stored[3]}
  end
  return nil
end

local function parse_record(stored)
  local fields = {string.match(stored, '^(%a) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%S+) (%d+)$')}
  local record = {state = fields[1], outcome = fields[10], generation = tonumber(fields[11])}
  for place, name in ipairs({'turn', 'request', 'begun', 'used', 'count', 'bytes', 'wait', 'latest'}) do
    record[name] = tonumber(fields[place + 1])
  end
  return record
end

local function read_record()
  local stored = redis.call('HGET', RECORDS, ARGV[8])
  return stored and parse_record(stored)
end

-- Tells when somebody has to look after a transaction; nil if nobody has.
local function when_due(record)
  if record.state == 'o' and record.generation < tonumber(ARGV[2]) then
    return now
  elseif record.state == 'o' then
    return math.min(record.used + record.wait, record.latest)
  end
  return record.state ~= 'd' and record.used + FINISH or nil
end

-- Lists the records of all transactions of the session, by number.
local function list_records()
  local found, records = redis.call('HGETALL', RECORDS), {}
  for at = 1, #found, 2 do
    records[found[at]] = parse_record(found[at + 1])
  end
  return records
end

local function schedule()
  local first
  for _, record in pairs(list_records()) do
    local due = when_due(record)
    if due and (not first or due < first) then
      first = due
    end
  end
  if first then
    redis.call('ZADD', OVERDUE, whole(first), ARGV[4])
  else
    redis.call('ZREM', OVERDUE, ARGV[4])
  end
end

local function write_record(record)
  local fields = {record.state}
  for _, name in ipairs({'turn', 'request', 'begun', 'used', 'count', 'bytes', 'wait', 'latest'}) do
    fields[#fields + 1] = whole(record[name])
  end
  fields[#fields + 1] = record.outcome
  fields[#fields + 1] = whole(record.generation)
  redis.call('HSET', RECORDS, ARGV[8], table.concat(fields, ' '))
  schedule()
end

local function operation(request)
  return ARGV[8] .. '.' .. request
end

-- Lists the fields of a transaction's operations, in the order of the requests that asked for them.
local function list_operations(record)
  local found, start = {}, operation('')
  for _, field in ipairs(record.count > 0 and redis.call('HKEYS', OPERATIONS) or {}) do
    if string.sub(field, 1, #start) == start then
      found[#found + 1] = tonumber(string.sub(field, #start + 1))
    end
  end
  table.sort(found)
  for place, request in ipairs(found) do
    found[place] = operation(whole(request))
  end
  return found
end

local function forget_operations(record)
  local found = list_operations(record)
  if #found > 0 then
    redis.call('HDEL', OPERATIONS, unpack(found))
  end
end

local function forget_record(record)
  forget_operations(record)
  redis.call('HDEL', RECORDS, ARGV[8])
  schedule()
end

-- Notes the end of a transaction; of a session that is gone there is nobody to tell.
local function end_record(record, outcome)
  forget_operations(record)
  if redis.call('EXISTS', SESSION) == 1 then
    record.state, record.outcome, record.used = 'd', outcome, now
    write_record(record)
  else
    redis.call('HDEL', RECORDS, ARGV[8])
    schedule()
  end
end

-- Forgets outcomes that the client knows.
local function forget_settled(settled)
  for number, record in pairs(list_records()) do
    if record.state == 'd' and record.request <= settled then
      redis.call('HDEL', RECORDS, number)
    end
  end
end
