-- Precedes every step of questions and answers. Needs clock.lua, foreign_ids.lua, and told.lua.
--
-- KEYS[1] handlers   hash    session -> "<epoch> <most> <has> <served> <1 if away> <principal, hashed>", and behind it each
--                            of its selectors, after a line break
-- KEYS[2] order      zset    of each selector, and of each selector and principal: "<hash> <0, or 1 if it has as many as it
--                            takes> <has> <served> <session>", all with score 0
-- KEYS[3] selectors  hash    selector -> how many sessions handle it
-- KEYS[4] questions  hash    "<asker> <number>" -> "<state> <deadline> <handler> <tag> <bytes> <p if directed>", and
--                            behind it the hashes by which its handlers are found, each after a space
-- KEYS[5] texts      hash    "<asker> <number>" -> what handlers are given, while it is not over
-- KEYS[6] timers     zset    "<asker> <number>" -> when something is due (ms)
-- KEYS[7] held       zset    "<handler> <tag in 16 digits> <asker> <number>", all with score 0
-- KEYS[8] asked      zset    "<asker> <number>", all with score 0
-- KEYS[9] state      hash    generation, newest tag (turn), bytes, revision of the selectors
-- KEYS[10] exchanges stream  ["?", "<handler> <tag> <asker> <number>"] of what was given, ["!", "<asker> <number>"] of what is
--                            over
-- KEYS[11] consuming hash    of the session that asks for this step: '?/' -> '' if it asked or handled here
-- KEYS[12] answers   hash    "<asker> <number>" -> "<how it ended><text>"
-- KEYS[13] receipts, KEYS[14] closed  queue_receipts.lua
-- ARGV[1] generation that the caller has adopted
-- ARGV[2] entries to keep in the exchanges, about
-- ARGV[3] session that asks for this step
--
-- States: 'p' put, and given to the handler; 't' taken by it; 'o' over.
-- Invariant: a question that was taken is given to nobody else. A handler has no more than it takes, unless that was
-- lowered. Tags only rise. What is given, and what is over, is told in the same step.
local FIRED_MOST, KEPT_MS, QUESTION_BYTES, TAKE_MS = 100, 10000, 512, 1000
local HANDLERS, ORDER, SELECTORS, QUESTIONS, TEXTS, TIMERS, HELD, ASKED, STATE, EXCHANGES = unpack(KEYS, 1, 10)
local CONSUMING, ANSWERS = KEYS[11], KEYS[12]
local generation, session = tonumber(ARGV[1]), ARGV[3]
local turn, bytes, revision

local function text(number)
  return string.format('%.0f', number)
end

-- Appends to the exchanges, after open().
local function tell(name, entry)
  redis.call('XADD', EXCHANGES, 'MAXLEN', '~', ARGV[2], ARGV[1] .. '-*', name, entry)
end

local function digest(words)
  return string.sub(redis.sha1hex(words), 1, 16)
end

-- Reads what every step needs; false if the caller's generation is over.
local function open()
  local stored = redis.call('HMGET', STATE, 'generation', 'turn', 'bytes', 'revision')
  local since = tonumber(stored[1] or 0)
  if since > generation then
    return false
  end
  -- A grid that has lost writes gives no tag again that somebody may know.
  turn = math.max(tonumber(stored[2] or 0), (generation - 1) * 4294967296)
  bytes, revision = tonumber(stored[3] or 0), stored[4] or ''
  prepare_told(EXCHANGES, ARGV[1])
  return true
end

local function close()
  redis.call(
    'HSET', STATE, 'generation', ARGV[1], 'turn', text(turn), 'bytes', text(bytes), 'revision', revision
  )
end

local function position()
  return last_of(EXCHANGES)[1]
end

-- Who handles ----------------------------------------------------------------------------------------------------------

-- Lists the places of a handler in the order; none while it is away.
local function places(name, each)
  local found = {}
  if each.away then
    return found
  end
  local rank = string.format(
    ' %d %06d %016.0f %s', each.has >= each.most and 1 or 0, each.has, each.served, name
  )
  for _, selector in ipairs(each.selectors) do
    found[#found + 1] = digest(selector) .. rank
    found[#found + 1] = digest(selector .. '\n' .. each.principal) .. rank
  end
  return found
end

local function handler(name)
  local stored = redis.call('HGET', HANDLERS, name)
  if not stored then
    return nil
  end
  local head, rest = string.match(stored, '^([^\n]*)\n?(.*)$')
  local epoch, most, has, served, away, principal = string.match(head, '^(%d+) (%d+) (%d+) (%d+) (%d) (%x*)$')
  local each = {
    epoch = tonumber(epoch), most = tonumber(most), has = tonumber(has), served = tonumber(served), away = away == '1',
    principal = principal, selectors = {},
  }
  for selector in string.gmatch(rest, '[^\n]+') do
    each.selectors[#each.selectors + 1] = selector
  end
  each.placed = places(name, each)
  return each
end

local function store_handler(name, each)
  if #each.placed > 0 then
    redis.call('ZREM', ORDER, unpack(each.placed))
  end
  if #each.selectors == 0 and each.has == 0 then
    redis.call('HDEL', HANDLERS, name)
    return
  end
  each.placed = places(name, each)
  local members = {}
  for _, member in ipairs(each.placed) do
    members[#members + 1], members[#members + 2] = 0, member
  end
  if #members > 0 then
    redis.call('ZADD', ORDER, unpack(members))
  end
  local lines = {
    string.format(
      '%.0f %d %d %.0f %d %s', each.epoch, each.most, each.has, each.served, each.away and 1 or 0, each.principal
    ),
    unpack(each.selectors),
  }
  redis.call('HSET', HANDLERS, name, table.concat(lines, '\n'))
end

-- Chooses who is given a question, but for one session; returns it, and whether there are others that have too many.
local function choose(groups, besides)
  local best, rank, busy = nil, nil, false
  for _, group in ipairs(groups) do
    local found = redis.call('ZRANGEBYLEX', ORDER, '[' .. group .. ' 0 ', '(' .. group .. ' 0!', 'LIMIT', 0, 2)
    for _, member in ipairs(found) do
      local order, name = string.match(member, '^%x+ 0 (%d+ %d+) (%S+)$')
      if name ~= besides then
        if not rank or order < rank then
          best, rank = name, order
        end
        break
      end
    end
    if not best and not busy then
      busy = #redis.call('ZRANGEBYLEX', ORDER, '[' .. group .. ' 1 ', '(' .. group .. ' 1!', 'LIMIT', 0, 1) > 0
    end
  end
  return best, busy
end

-- Questions ------------------------------------------------------------------------------------------------------------

local function question(id)
  local stored = redis.call('HGET', QUESTIONS, id)
  if not stored then
    return nil
  end
  local state, deadline, name, tag, size, directed, rest = string.match(
    stored, '^(%a) (%d+) (%S+) (%d+) (%d+) ([p-])(.*)$'
  )
  local each = {
    state = state, deadline = tonumber(deadline), handler = name, tag = tonumber(tag), size = tonumber(size),
    directed = directed, groups = {},
  }
  for group in string.gmatch(rest, '%x+') do
    each.groups[#each.groups + 1] = group
  end
  return each
end

local function store_question(id, each)
  local head = string.format(
    '%s %.0f %s %.0f %.0f %s', each.state, each.deadline, each.handler, each.tag, each.size, each.directed
  )
  redis.call('HSET', QUESTIONS, id, table.concat({head, unpack(each.groups)}, ' '))
end

local function held_member(id, each)
  return string.format('%s %016.0f %s', each.handler, each.tag, id)
end

-- Gives a question to a handler, and tells it.
local function give(id, each, name)
  turn = turn + 1
  local to = handler(name)
  to.has, to.served = to.has + 1, turn
  store_handler(name, to)
  each.state, each.handler, each.tag = 'p', name, turn
  store_question(id, each)
  redis.call('ZADD', HELD, 0, held_member(id, each))
  redis.call('ZADD', TIMERS, text(math.min(each.deadline, now + TAKE_MS)), id)
  tell('?', name .. ' ' .. text(turn) .. ' ' .. id)
end

-- Takes a question from its handler.
local function take_away(id, each)
  if redis.call('ZREM', HELD, held_member(id, each)) == 1 then
    local from = handler(each.handler)
    if from then
      from.has = math.max(0, from.has - 1)
      store_handler(each.handler, from)
    end
  end
end

-- Ends a question.
local function finish(id, each, how, answer)
  take_away(id, each)
  redis.call('HDEL', TEXTS, id)
  bytes = bytes - each.size
  each.state, each.size = 'o', QUESTION_BYTES + #answer
  bytes = bytes + each.size
  store_question(id, each)
  redis.call('HSET', ANSWERS, id, how .. answer)
  redis.call('ZADD', TIMERS, text(math.max(now, each.deadline) + KEPT_MS), id)
  tell('!', id)
end

local function forget(id, each)
  if each.state ~= 'o' then
    take_away(id, each)
  end
  bytes = math.max(0, bytes - each.size)
  redis.call('HDEL', QUESTIONS, id)
  redis.call('HDEL', TEXTS, id)
  redis.call('HDEL', ANSWERS, id)
  redis.call('ZREM', ASKED, id)
  redis.call('ZREM', TIMERS, id)
end

-- Does with a question that was put and not taken what can be done: another handler is given it, or it waits.
local function pass_on(id, each)
  local other = each.directed ~= 'p' and choose(each.groups, each.handler)
  if other then
    take_away(id, each)
    give(id, each, other)
  else
    redis.call('ZADD', TIMERS, text(math.min(each.deadline, now + TAKE_MS)), id)
  end
end

-- Ends a question whose time is over.
local function time_out(id, each)
  finish(id, each, each.state == 't' and 'T' or 't', '')
end

-- Looks up a question for who asks for it: its time is over also if there was more due than one step does.
local function question_now(id)
  local each = question(id)
  if each and each.state ~= 'o' and each.deadline <= now and sure then
    time_out(id, each)
  end
  return each
end

-- Does what is due, up to FIRED_MOST; returns whether there may be more.
local function fire()
  if not sure then
    return false
  end
  local due = redis.call('ZRANGEBYSCORE', TIMERS, '-inf', text(now), 'LIMIT', 0, FIRED_MOST)
  for _, id in ipairs(due) do
    local each = question(id)
    if not each then
      redis.call('ZREM', TIMERS, id)
    elseif each.state == 'o' then
      forget(id, each)
    elseif each.deadline <= now then
      time_out(id, each)
    elseif each.state == 'p' then
      local slow = handler(each.handler)
      if slow and not slow.away then
        -- Its node is dead or its client slow: nobody is sent to it before it takes something.
        slow.away = true
        store_handler(each.handler, slow)
      end
      pass_on(id, each)
    else
      redis.call('ZADD', TIMERS, text(each.deadline), id)
    end
  end
  return #due == FIRED_MOST
end
