-- Precedes the steps by which sessions become members of a tree of topics, and are it no more. Needs clock.lua, sizes.lua
-- and removals.lua.
--
-- KEYS[1] values   hash    topic -> "<version> <generation>-<sequence> <value>"; sizes.lua
-- KEYS[2] stream   stream  entries [topic, "<version> <value>"]
-- KEYS[3] removed  zset    removed topic -> when to forget it (ms)
-- KEYS[4] sizes    hash    bytes of the stream; sizes.lua
-- KEYS[5] origins  hash    topic -> what crossed between clusters; removals.lua
-- KEYS[6] presence hash    tree -> "<members that there are topics of> <when its count was told (ms)>"
-- KEYS[7] due      zset    tree -> when its count has to be told (ms)
-- KEYS[8] members  hash    session -> '1' if there is a topic of it, else '0' and what is told of it; of one tree
-- KEYS[9] watched  string  "<until when somebody watches (ms)> <since when (ms)> <'1' if all is told, else '0'>"
-- ARGV[1] generation that the caller has adopted
-- ARGV[2] entries to keep in the stream, about
-- ARGV[3] bytes to keep in the stream, about; 0 for no limit
-- ARGV[4] tree
-- ARGV[5] how long to remember a removal (ms)
-- ARGV[6] how far apart counts are told at least (ms)
--
-- Invariant: a tree has as many members as its hash has fields, each session once. What is told of a member changes in
-- the step in which the hash does; the count does too, unless it was told a moment ago: then it is among those due. While
-- nobody watches, nobody new is told of, and the count is not told at all once it has changed: so nothing that is told is
-- ever wrong, and when somebody watches, only what is missing has to be told (presence_list.lua).
local VALUES, STREAM, REMOVED, SIZES, ORIGINS, PRESENCE, DUE, MEMBERS, WATCHED = unpack(KEYS, 1, 9)
local generation, length, stream_bytes, tree, memory, apart = unpack(ARGV, 1, 6)
local COUNT_TOPIC = '$presence/' .. tree .. '/$count'

local function topic_of(session)
  return '$presence/' .. tree .. '/$members/' .. session
end

-- Puts a value in the place of what a topic has, '' for a removal; nothing if it has just that. Returns nothing, or what
-- the step answers instead: 'stale', 'emptied' or an error, as in topic_publish.lua.
local function put(topic, value)
  local stored, beside = unpack(redis.call('HMGET', VALUES, topic, ''))
  if stored and string.match(stored, '^%d+ %S+ (.*)$') == value or not stored and value == '' then
    return nil
  end
  local floor, total = read_floor(beside)
  if not total then
    -- What cannot be counted where no memory is left is counted by a later step.
    total = count_values(SIZES, VALUES)
  end
  local known, bytes
  if stored then
    known, bytes = read_value(stored)
  end
  local version = string.format('%.0f', math.max(known or tonumber(floor), (generation - 1) * 4294967296) + 1)
  local event = redis.pcall('XADD', STREAM, 'MAXLEN', '~', length, generation .. '-*', topic, version .. ' ' .. value)
  if type(event) == 'table' then
    if string.find(event.err, 'equal or smaller', 1, true) then
      return 'stale'
    end
    return redis.error_reply(event.err)
  end
  if string.sub(event, -2) == '-0' then
    redis.call('DEL', STREAM, SIZES)
    return 'emptied'
  end
  redis.call('HSET', VALUES, topic, version .. ' ' .. event .. ' ' .. value)
  count_entries(SIZES, STREAM, VALUES, event, #topic + #value + ENTRY_BYTES, tonumber(stream_bytes))
  local least, freed = floor, 0
  if value == '' then
    redis.call('ZADD', REMOVED, clock + memory, topic)
    least, freed = forget_removals(VALUES, REMOVED, ORIGINS, clock, 10, floor)
    least = least .. '.0'
  end
  local more = stored and #value - bytes or #topic + #value + VALUE_BYTES
  redis.call('HSET', VALUES, '', total and write_floor(least, total + more - freed) or string.match(least, '^%d+'))
  return nil
end

-- Tells whether somebody watches trees of this partition.
local function is_watched()
  local watched = redis.call('GET', WATCHED)
  return watched and tonumber(string.match(watched, '^%d+') or 0) > now
end

-- Returns of how many members there are topics, when the count was told, 0 if it is not, and whether the tree is known.
local function read_presence()
  local stored = redis.call('HGET', PRESENCE, tree)
  local listed, told = string.match(stored or '', '^(%d+) (%d+)$')
  return tonumber(listed or 0), tonumber(told or 0), stored
end

local function write_presence(listed, told)
  redis.call('HSET', PRESENCE, tree, string.format('%.0f %.0f', listed, told))
end

-- Notes how many are listed, and tells the count, if it may be told again by now; else later. Returns as put.
local function tell_count(listed, told, at_once)
  local count = redis.call('HLEN', MEMBERS)
  if not at_once and told + apart > now and told <= now then
    write_presence(listed, told)
    redis.call('ZADD', DUE, 'NX', told + apart, tree)
    return nil
  end
  if count > 0 then
    write_presence(listed, now)
  else
    redis.call('HDEL', PRESENCE, tree)
  end
  redis.call('ZREM', DUE, tree)
  return put(COUNT_TOPIC, count > 0 and string.format('{"count":%.0f,"listed":%.0f}', count, listed) or '')
end

-- Notes that others are members while nobody watches: the count is told no more, as it would be wrong. Returns as put.
local function keep_untold(listed, told)
  if redis.call('EXISTS', MEMBERS) == 1 then
    write_presence(listed, 0)
  else
    redis.call('HDEL', PRESENCE, tree)
  end
  if told > 0 then
    redis.call('ZREM', DUE, tree)
    return put(COUNT_TOPIC, '')
  end
  return nil
end
