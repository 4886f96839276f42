#!lua
-- Make a queue that is there until it is removed: for a shared subscription, or for the life of a session.
--
-- KEYS[1] to KEYS[12]  queue.lua
-- KEYS[13] consuming  hash  of the session in this partition: queue -> ''; '?/', "/..." and "\n..." are no queues
-- KEYS[14] closed     zset  short hashes of ended sessions -> when to forget them (ms)
-- ARGV[1..3] queue.lua
-- ARGV[4] bounds of the queue, as in queue_send.lua
-- ARGV[5] queues that the partition may hold
-- ARGV[6] session whose queue it is; '' for none
-- ARGV[7] short hash of its id
-- ARGV[8] for what it is, if it is no session's
-- ARGV[9] where that begins
-- ARGV[10] queues in this partition that the session may have, or consume from
-- Result  1; 'queues': there are as many as there may be; 'fenced': the session has ended; 'stale': the caller must adopt
--         the grid again
--
-- Invariant: the end of the session finds it (P7). Asked twice, the second time changes nothing, but the bounds, and when
-- that of a shared subscription was used last.
if not open(ARGV[4]) then
  return 'stale'
end

-- Tells whether the session has as many queues here as it may have. Mostly the hash tells by its length alone.
local function has_many(most)
  if redis.call('HLEN', KEYS[13]) < most then
    return false
  end
  local names, count = {}, 0
  for _, name in ipairs(redis.call('HKEYS', KEYS[13])) do
    if name ~= '?/' and not string.find(name, '^[/\n]') then
      names[#names + 1] = name
    end
  end
  for first = 1, #names, ARGUMENTS_MOST do
    -- One that was removed may have left its name.
    local last = math.min(first + ARGUMENTS_MOST - 1, #names)
    for _, there in ipairs(redis.call('HMGET', QUEUES, unpack(names, first, last))) do
      count = count + (there and 1 or 0)
    end
  end
  return count >= most
end

local session = ARGV[6]
if session ~= '' and redis.call('ZSCORE', KEYS[14], ARGV[7]) then
  return 'fenced'
end
if not meta.source and not meta.owner then
  if not known and redis.call('HLEN', QUEUES) - 1 >= tonumber(ARGV[5]) then
    return 'queues'
  end
  if session ~= '' and has_many(tonumber(ARGV[10])) then
    return 'queues'
  end
  if session ~= '' then
    meta.owner = session
    redis.call('HSET', META, 'owner', session)
    redis.call('HSET', KEYS[13], queue, '')
  else
    meta.source = ARGV[8]
    redis.call('HSET', META, 'source', ARGV[8], 'fed', ARGV[9])
  end
end
if meta.source then
  redis.call('HSET', META, 'used', text(now))
end
close()
return 1
