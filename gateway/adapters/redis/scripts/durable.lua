-- Precedes the steps of a durable subscription that one session asks for.
--
-- KEYS[1] mine   hash  of the principal: name -> "<life (ms)> <made (ms)> <session, - for none, + if it is shared,
--                      ! if it is shared and being removed> <epoch> <position or -> <selector>"
-- KEYS[2] index  zset  of the partition: [principal,name] -> when it is forgotten (ms); NEVER while a session uses it
-- ARGV[1] name
-- ARGV[2] [principal,name]
local NEVER, SHARED, REMOVING = '9007199254740991', '+', '!'
local MINE, INDEX, name, entry = KEYS[1], KEYS[2], ARGV[1], ARGV[2]

-- Returns what is held of it, or nothing; what the gateway did not write is nothing.
local function read()
  local stored = redis.call('HGET', MINE, name)
  local life, made, session, epoch, position, selector
  if stored then
    life, made, session, epoch, position, selector = string.match(stored, '^(%d+) (%d+) (%S+) (%d+) (%S+) (.+)$')
  end
  if not life then
    return nil
  end
  return {life = life, made = made, session = session, epoch = epoch, position = position, selector = selector}
end

-- Writes it, and when it is forgotten: a life from the moment when nobody uses it.
local function write(each, forgotten)
  local record = {each.life, each.made, each.session, each.epoch, each.position, each.selector}
  redis.call('HSET', MINE, name, table.concat(record, ' '))
  if forgotten then
    redis.call('ZADD', INDEX, forgotten, entry)
  end
end
