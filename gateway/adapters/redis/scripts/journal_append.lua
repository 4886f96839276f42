-- Append a batch of events to one partition of the journal, exactly once, and cut what is beyond the cap.
--
-- KEYS[1] journal  stream  "<generation>-<sequence>" -> ["events", one JSON text a line, "count", how many, "total", how
--                          many there were in the stream up to and with these]
-- KEYS[2] state    hash    see keys.py
-- ARGV[1] generation that the caller has adopted
-- ARGV[2] incarnation of the node that appends
-- ARGV[3] number of the batch among those of that incarnation here
-- ARGV[4] how many events there are
-- ARGV[5] the events
-- ARGV[6] entries to keep
-- ARGV[7] entries to cut in this step at most
-- ARGV[8] a random text: the partition's incarnation, if it begins one
-- ARGV[9] milliseconds after which a node incarnation that appended nothing is forgotten
-- Result  {1 appended or 0 it was there before, events cut unread, events cut of which nobody ever read any, entries of
--         other programs that were deleted};
--         or 'stale': the grid is of another generation, and the caller must adopt again; or an error: Redis refuses
--
-- Invariant: of one node incarnation numbers rise, and each is appended once. A stream and its state have the same
-- incarnation: a partition that lost its stream begins another one, and knows nothing of what was committed before.
-- Whatever is cut before it was committed is counted; where hooks alone read, they find it by the totals.
-- Needs foreign_ids.lua.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local producer = 'producer:' .. ARGV[2]
local state = redis.call('HMGET', KEYS[2], 'incarnation', 'committed', producer, 'events', 'hooks')
local begins = not state[1] or redis.call('EXISTS', KEYS[1]) == 0
if not begins and state[3] and (tonumber(string.match(state[3], '^%d+')) or 0) >= tonumber(ARGV[3]) then
  return {0, 0, 0, 0}
end

-- The first thing that is written, so that nothing was if Redis refuses.
local total
local function append()
  total = string.format('%.0f', (begins and 0 or tonumber(state[4] or '0') or 0) + ARGV[4])
  return redis.pcall('XADD', KEYS[1], ARGV[1] .. '-*', 'events', ARGV[5], 'count', ARGV[4], 'total', total)
end
local entry, swept = append(), 0
if type(entry) == 'table' and string.find(entry.err, 'equal or smaller', 1, true) then
  swept = delete_from(KEYS[1], LARGEST_GENERATION + 1)
  if swept > 0 then
    local last = last_of(KEYS[1])
    local behind = last and last[1]
    if not behind then
      -- An empty one stays: it is the same journal, and goes on behind what its reader has and trimmed.
      local generation = tonumber(string.match(state[2] or '', '^(%d+)-%d+$') or 0)
      behind = generation > 0 and generation <= LARGEST_GENERATION and state[2] or '0-1'
    end
    -- Redis would go on telling the id of what was deleted, and hide from the reader what is deleted by hand later.
    redis.call('XSETID', KEYS[1], behind, 'MAXDELETEDID', '0-1')
    entry = append()
  end
elseif type(entry) == 'table' and string.find(entry.err, 'WRONGTYPE', 1, true) then
  redis.call('DEL', KEYS[1])
  begins, swept = true, 1
  entry = append()
end
if type(entry) == 'table' then
  if string.find(entry.err, 'equal or smaller', 1, true) then
    return 'stale'
  end
  return redis.error_reply(entry.err)
end
local committed = state[2]
if begins then
  committed = false
  redis.call('HSET', KEYS[2], 'incarnation', ARGV[8])
  redis.call('HDEL', KEYS[2], 'committed')
end
if not state[3] then
  -- A node was started: the moment to forget those that are no more.
  local fields = redis.call('HGETALL', KEYS[2])
  for index = 1, #fields, 2 do
    local last = string.find(fields[index], '^producer:') and string.match(fields[index + 1], ' (%d+)$')
    if last and tonumber(last) + ARGV[9] < now then
      redis.call('HDEL', KEYS[2], fields[index])
    end
  end
end
redis.call('HSET', KEYS[2], producer, ARGV[3] .. ' ' .. string.format('%.0f', now), 'events', total)

local beyond = math.min(redis.call('XLEN', KEYS[1]) - ARGV[6], tonumber(ARGV[7]))
if beyond <= 0 then
  return {1, 0, 0, swept}
end
local function parts(id)
  local generation, sequence = string.match(id, '^(%d+)-(%d+)$')
  return tonumber(generation), tonumber(sequence)
end
local known, read = 0, 0
if committed then
  known, read = parts(committed)
  known, read = known or 0, read or 0
  -- A reader of an earlier release could commit an entry of another program: it says nothing of what was read.
  if known > LARGEST_GENERATION then
    known, read = 0, 0
  end
end
local cut = 0
for _, old in ipairs(redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', beyond)) do
  local generation, sequence = parts(old[1])
  if not committed or generation > known or (generation == known and sequence > read) then
    -- What another program appended counts for nothing.
    cut = cut + (tonumber(old[2][4]) or 0)
  end
end
redis.call('XTRIM', KEYS[1], 'MAXLEN', '=', redis.call('XLEN', KEYS[1]) - beyond)
if not committed and state[5] then
  cut = 0
end
if cut > 0 then
  redis.call('HINCRBY', KEYS[2], committed and 'lost' or 'unclaimed', string.format('%.0f', cut))
end
return {1, committed and cut or 0, committed and 0 or cut, swept}
