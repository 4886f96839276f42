-- Precedes every step of a queue. Needs clock.lua, foreign_ids.lua, and told.lua.
--
-- KEYS[1] meta        hash    bytes of messages, of dead ones (dead), newest tag (turn), messages ever sent (sent), the one
--                             consumer (holder); of one that was declared: for what (source), where that goes on (fed),
--                             and when it was declared again, or the last consumer left (used); or by whom (owner)
-- KEYS[2] messages    hash    id -> "<sent> <expires or 0> <bytes of headers> <headers><value>", never changed
-- KEYS[3] ready       zset    id -> id
-- KEYS[4] timers      zset    "r<id>" (delayed), "e<id>" (expires), "d<id>" (a dead letter goes: of the oldest at the right
--                             time, of others also at another), "a<session> <tag> <id>" (held too long) -> when (ms)
-- KEYS[5] held        zset    "<session> <tag in 16 digits> <id>", all with score 0
-- KEYS[6] consumers   hash    session -> "<epoch> <credit> <held> <seen> <joined>"
-- KEYS[7] idle        zset    session with credit left -> tag that it was given last
-- KEYS[8] dead        zset    id -> since when (ms), with a fraction that has those of one millisecond in order
-- KEYS[9] notes       hash    id -> "<failed deliveries> <reason>" of messages that were given to somebody before; the
--                             reason of a dead letter, else "-", or "!" of one that was put back and expires no more
-- KEYS[10] queues     hash    of the partition: queue -> its bounds; '' -> "<generation> <newest id>"
-- KEYS[11] due        zset    of the partition: queue -> when its first timer is over, or there is more to assign (ms)
-- KEYS[12] deliveries stream  of the partition: [queue, "<session> <epoch>[ <tag> <id> <failed> <0 or 1>]..."]
-- ARGV[1] queue
-- ARGV[2] generation that the caller has adopted
-- ARGV[3] entries to keep in the deliveries, about
--
-- Invariant: a message is in ready, held, dead, or has an "r" timer, and in one of these only (P15). Ids and tags only
-- rise. A consumer holds no more than its credit, unless that was lowered. What is assigned is told in the same step. What is
-- ready while somebody has credit left is assigned in the same step, too, up to ASSIGNED_MOST, the largest credit; with
-- more the queue is due at once. What has expired is given to nobody, also if there was more due than one step fires.
local MESSAGE_BYTES, FIRED_MOST, ARGUMENTS_MOST, ASSIGNED_MOST, DEAD_APART = 256, 200, 4000, 1000, 1 / 2048
local META, MESSAGES, READY, TIMERS, HELD, CONSUMERS, IDLE, DEAD, NOTES, QUEUES, DUE, DELIVERIES = unpack(KEYS, 1, 12)
local queue, generation, kept = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local bounds, meta, newest_id, known
local consumers, touched, timed, has_timers, has_notes = {}, {}, false, false, false
local assignable, unfinished, behind = ASSIGNED_MOST, false, false

local function text(number)
  return string.format('%.0f', number)
end

-- Calls a command with many arguments, in pieces.
local function call_many(command, key, arguments)
  for first = 1, #arguments, ARGUMENTS_MOST do
    redis.call(command, key, unpack(arguments, first, math.min(first + ARGUMENTS_MOST - 1, #arguments)))
  end
end

-- Reads what every step needs; false if the caller's generation is over.
local function open(given)
  local stored = redis.call('HMGET', QUEUES, '', queue)
  local since, id = string.match(stored[1] or '0 0', '^(%d+) (%d+)$')
  if tonumber(since) > generation then
    return false
  end
  -- A grid that has lost writes gives no id and no tag again that somebody may know.
  local least = (generation - 1) * 4294967296
  newest_id = math.max(tonumber(id), least)
  known = stored[2]
  local told = given or known or '1 1 0 0 0 0 0 0 0'
  bounds = {}
  for number in string.gmatch(told, '%d+') do
    bounds[#bounds + 1] = tonumber(number)
  end
  if given and given ~= known then
    bounds.changed = given
  end
  local found = redis.call('HMGET', META, 'bytes', 'dead', 'turn', 'holder', 'source', 'owner', 'sent')
  meta = {tonumber(found[1] or 0), tonumber(found[2] or 0), math.max(tonumber(found[3] or 0), least), found[4] or ''}
  meta.source, meta.owner, meta.sent = found[5], found[6], tonumber(found[7] or 0)
  has_timers = redis.call('ZCARD', TIMERS) > 0
  has_notes = redis.call('HLEN', NOTES) > 0
  return true
end

local function consumer(session)
  local found = consumers[session]
  if found == nil then
    local stored = redis.call('HGET', CONSUMERS, session)
    found = false
    if stored then
      local epoch, credit, held, seen, joined = string.match(stored, '^(%d+) (%d+) (%d+) (%d+) (%d+)$')
      found = {epoch, tonumber(credit), tonumber(held), tonumber(seen), joined, 0}
    end
    consumers[session] = found
  end
  return found
end

local function set_timer(member, when)
  redis.call('ZADD', TIMERS, text(when), member)
  timed, has_timers = true, true
end

local function drop_timer(member)
  if has_timers and redis.call('ZREM', TIMERS, member) == 1 then
    timed = true
  end
end

local function forget(id)
  redis.call('HDEL', MESSAGES, id)
  if has_notes then
    redis.call('HDEL', NOTES, id)
  end
end

local function size_of(id)
  return redis.call('HSTRLEN', MESSAGES, id) + MESSAGE_BYTES
end

local function forget_dead(id)
  meta[2] = meta[2] - size_of(id)
  redis.call('ZREM', DEAD, id)
  drop_timer('d' .. id)
  forget(id)
end

-- Tells the score of the next dead letter: equal ones would be in the order of their ids as text. It goes on from the last
-- one, unless the clock went back.
local function next_death()
  local last = tonumber(redis.call('ZRANGE', DEAD, -1, -1, 'WITHSCORES')[2] or 0)
  if last < now or last > now + 1000 then
    return text(now)
  end
  return string.format('%.17g', last + DEAD_APART)
end

-- Puts a message that is nowhere else among the dead letters.
local function bury(id, failed, reason)
  local size = size_of(id)
  drop_timer('e' .. id)
  meta[1], meta[2] = meta[1] - size, meta[2] + size
  redis.call('ZADD', DEAD, next_death(), id)
  redis.call('HSET', NOTES, id, failed .. ' ' .. reason)
  has_notes = true
  if bounds[9] > 0 then
    set_timer('d' .. id, now + bounds[9])
  end
  local dead = redis.call('ZCARD', DEAD)
  while dead > 0 and (dead > bounds[7] or meta[2] > bounds[8]) do
    forget_dead(redis.call('ZRANGE', DEAD, 0, 0)[1])
    dead = dead - 1
  end
end

local function failures(id)
  local note = has_notes and redis.call('HGET', NOTES, id)
  if not note then
    return 0, false, '-'
  end
  local count, reason = string.match(note, '^(%d+) (%S+)$')
  return tonumber(count), true, reason
end

-- Puts a message that somebody held back to its place.
local function give_back(id, failed, delay)
  local before, _, mark = failures(id)
  local count = before + (failed and 1 or 0)
  if failed and bounds[4] > 0 and count >= bounds[4] then
    return bury(id, count, 'deliveries')
  end
  local expires = tonumber(string.match(redis.call('HGET', MESSAGES, id), '^%d+ (%d+)'))
  if expires > 0 and expires <= now and sure and mark ~= '!' then
    return bury(id, count, 'expired')
  end
  redis.call('HSET', NOTES, id, count .. ' ' .. mark)
  has_notes = true
  if delay > 0 then
    set_timer('r' .. id, now + delay)
  else
    redis.call('ZADD', READY, id, id)
  end
end

-- Takes an assignment away, of which it is known that it is there.
local function take_away(member, session)
  redis.call('ZREM', HELD, member)
  drop_timer('a' .. member)
  local holder = consumer(session)
  if holder then
    holder[3] = holder[3] - 1
    touched[session] = holder
  end
end

-- Lets dead letters go that are too old by the bounds in force, and sees that there is a timer for the oldest that stays.
local function age_dead()
  if bounds[9] == 0 then
    return
  end
  local oldest = redis.call('ZRANGE', DEAD, 0, 0, 'WITHSCORES')
  if sure and oldest[2] and math.floor(oldest[2]) + bounds[9] <= now then
    oldest = redis.call('ZRANGE', DEAD, 0, FIRED_MOST, 'WITHSCORES')
  end
  for at = 1, #oldest, 2 do
    local goes = math.floor(oldest[at + 1]) + bounds[9]
    if goes > now or not sure or at > 2 * FIRED_MOST then
      return set_timer('d' .. oldest[at], goes)
    end
    forget_dead(oldest[at])
  end
end

-- Orders timers as [1] they are due; those of one millisecond by the ids of their messages.
local function by_time(one, other)
  if one[2] ~= other[2] then
    return one[2] < other[2]
  end
  return one[3] < other[3]
end

-- Does what is due, up to FIRED_MOST; from then on `behind` tells whether there may be more.
local function fire()
  behind = false
  if not has_timers or not sure then
    return
  end
  local found = redis.call('ZRANGEBYSCORE', TIMERS, '-inf', text(now), 'WITHSCORES', 'LIMIT', 0, FIRED_MOST)
  local due, aged = {}, false
  for at = 1, #found, 2 do
    due[#due + 1] = {found[at], tonumber(found[at + 1]), tonumber(string.match(found[at], '%d+$'))}
  end
  table.sort(due, by_time)
  for _, each in ipairs(due) do
    local member = each[1]
    local kind, rest = string.sub(member, 1, 1), string.sub(member, 2)
    -- What was buried on the way has lost its timers.
    if redis.call('ZREM', TIMERS, member) == 1 then
      timed = true
      if kind == 'r' then
        redis.call('ZADD', READY, rest, rest)
      elseif kind == 'e' then
        if redis.call('ZREM', READY, rest) == 1 or redis.call('ZREM', TIMERS, 'r' .. rest) == 1 then
          bury(rest, (failures(rest)), 'expired')
        end
      elseif kind == 'd' then
        aged = true
      else
        local session, tag, id = string.match(rest, '^(%S+) (%d+) (%d+)$')
        take_away(rest, session)
        local holder = consumer(session)
        give_back(id, holder and tonumber(tag) <= holder[4], 0)
      end
    end
  end
  if aged then
    age_dead()
  end
  behind = #due == FIRED_MOST
end

-- Leaves out, and buries, those of some ids, which are in no place any more, that have expired and were not fired yet.
local function leave_out_expired(ids)
  local names, rest = {}, {}
  for number, id in ipairs(ids) do
    names[number] = 'e' .. id
  end
  local due = redis.call('ZMSCORE', TIMERS, unpack(names))
  for number, id in ipairs(ids) do
    if due[number] and tonumber(due[number]) <= now then
      bury(id, (failures(id)), 'expired')
    else
      rest[#rest + 1] = id
    end
  end
  return rest
end

-- Appends to the deliveries. Most steps need not look at them first: an entry is refused if another program's is in its way,
-- and has the number 0 if it would be the first of a generation or of a stream.
local function tell(name, entry)
  local added = redis.pcall('XADD', DELIVERIES, 'MAXLEN', '~', kept, ARGV[2] .. '-*', name, entry)
  local is_first = type(added) == 'string' and string.sub(added, -2) == '-0'
  if is_first then
    redis.call('XDEL', DELIVERIES, added)
  end
  if is_first or type(added) == 'table' then
    prepare_told(DELIVERIES, ARGV[2])
    redis.call('XADD', DELIVERIES, 'MAXLEN', '~', kept, ARGV[2] .. '-*', name, entry)
  end
end

-- Tells how many of the oldest that are ready are to be dropped so that so many messages fewer are there, and so many bytes,
-- and how many bytes these have; goes on from what it told before. Nothing if all of them are not enough.
local function count_oldest(dropped, freed, over, over_bytes)
  while dropped < over or freed < over_bytes do
    local oldest = redis.call('ZRANGE', READY, dropped, dropped)[1]
    if not oldest then
      return nil
    end
    dropped, freed = dropped + 1, freed + size_of(oldest)
  end
  return dropped, freed
end

local function drop(id)
  redis.call('ZREM', READY, id)
  bury(id, (failures(id)), 'overflow')
end

-- Puts a consumer in its place among those who have credit: whoever got some back goes behind all who waited.
local function place(session, each)
  if each[2] <= each[3] then
    redis.call('ZREM', IDLE, session)
  elseif each[6] > 0 then
    redis.call('ZADD', IDLE, text(each[6]), session)
  else
    redis.call('ZADD', IDLE, 'NX', text(meta[3]), session)
  end
end

-- Lists those who can be given something, least recently served first, so many at most.
local function takers(count)
  for session, each in pairs(touched) do
    place(session, each)
  end
  if bounds[6] == 1 then
    return redis.call('ZSCORE', IDLE, meta[4]) and {meta[4]} or {}
  end
  return redis.call('ZRANGE', IDLE, 0, count - 1)
end

-- Gives what is ready, and then the fresh ids, which are above all that is ready, to those who have credit; the rest of
-- the fresh ones become ready. What `direct` gets is not told by the deliveries. Nothing is taken from what is ready before
-- it is known who gets it, and so many a step that Redis can take them as arguments.
local function assign(fresh, direct)
  local told, order = {}, {}
  while true do
    local waiting = redis.call('ZCARD', READY)
    local total = waiting + #fresh
    local sessions, free = {}, 0
    if total > 0 then
      sessions = takers(math.max(1, math.min(total, assignable)))
      for _, session in ipairs(sessions) do
        local each = consumer(session)
        free = free + each[2] - each[3]
      end
    end
    local count = math.min(total, free, assignable)
    assignable = assignable - count
    local ids, used = {}, 0
    if waiting > 0 and count > 0 then
      ids = redis.call('ZRANGE', READY, 0, count - 1)
      redis.call('ZREMRANGEBYRANK', READY, 0, #ids - 1)
    end
    while #ids < count do
      used = used + 1
      ids[#ids + 1] = fresh[used]
    end
    local rest = {}
    for at = used + 1, #fresh do
      rest[#rest + 1], rest[#rest + 2] = fresh[at], fresh[at]
    end
    call_many('ZADD', READY, rest)
    fresh = {}
    if count == 0 then
      unfinished = free > 0
      break
    end
    if behind then
      ids = leave_out_expired(ids)
    end
    local notes = has_notes and #ids > 0 and redis.call('HMGET', NOTES, unpack(ids)) or {}
    local members, at = {}, 0
    for number, id in ipairs(ids) do
      local session, each
      repeat
        at = at % #sessions + 1
        session = sessions[at]
        each = consumer(session)
      until each[2] > each[3]
      meta[3] = meta[3] + 1
      each[3], each[6] = each[3] + 1, meta[3]
      touched[session] = each
      local member = string.format('%s %016.0f %s', session, meta[3], id)
      members[#members + 1], members[#members + 2] = 0, member
      if bounds[5] > 0 then
        set_timer('a' .. member, now + bounds[5])
      end
      if session ~= direct then
        local parts = told[session]
        if not parts then
          parts = {session .. ' ' .. each[1]}
          told[session] = parts
          order[#order + 1] = session
        end
        local note = notes[number]
        parts[#parts + 1] = text(meta[3]) .. ' ' .. id .. (note and ' ' .. string.match(note, '^%d+') .. ' 1' or ' 0 0')
      end
    end
    call_many('ZADD', HELD, members)
  end
  for _, session in ipairs(order) do
    tell(queue, table.concat(told[session], ' '))
  end
end

-- Tells whether it is of the kind that has to be declared, and was not, or is no more.
local function is_undeclared()
  return string.sub(queue, 1, 1) == '$' and not meta.source and not meta.owner
end

-- Deletes all of it.
local function remove()
  redis.call('DEL', META, MESSAGES, READY, TIMERS, HELD, CONSUMERS, IDLE, DEAD, NOTES)
  redis.call('HDEL', QUEUES, queue)
  redis.call('ZREM', DUE, queue)
  redis.call('HSET', QUEUES, '', generation .. ' ' .. text(newest_id))
end

-- Writes what has changed, and deletes what is left of a queue that has nothing and nobody.
local function close()
  if known and bounds.changed then
    -- Perhaps by another age.
    age_dead()
  end
  for session, each in pairs(touched) do
    local stored = each[1] .. ' ' .. each[2] .. ' ' .. each[3] .. ' ' .. text(each[4]) .. ' ' .. each[5]
    redis.call('HSET', CONSUMERS, session, stored)
    place(session, each)
  end
  local is_kept = meta.source or meta.owner
  if not is_kept and redis.call('HLEN', MESSAGES) == 0 and redis.call('HLEN', CONSUMERS) == 0 then
    return remove()
  end
  redis.call(
    'HSET', META, 'bytes', text(meta[1]), 'dead', text(meta[2]), 'turn', text(meta[3]), 'holder', meta[4],
    'sent', text(meta.sent)
  )
  if bounds.changed then
    redis.call('HSET', QUEUES, '', generation .. ' ' .. text(newest_id), queue, bounds.changed)
  else
    redis.call('HSET', QUEUES, '', generation .. ' ' .. text(newest_id))
  end
  if unfinished then
    redis.call('ZADD', DUE, text(now), queue)
  elseif timed then
    local first = redis.call('ZRANGE', TIMERS, 0, 0, 'WITHSCORES')
    if first[2] then
      redis.call('ZADD', DUE, first[2], queue)
    else
      redis.call('ZREM', DUE, queue)
    end
  end
end
