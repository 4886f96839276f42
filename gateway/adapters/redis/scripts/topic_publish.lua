-- Publish values of one session in one partition, each exactly once (P5), in the order of the session's requests.
--
-- KEYS[1] values    hash    topic -> "<version> <generation>-<sequence> <value>"
-- KEYS[2] stream    stream  entries [topic, "<version> <value>"]
-- KEYS[3] receipts  list    of the session in this partition: "<epoch> <request> <version> <event> <settled>", by request
-- KEYS[4] closed    zset    short hashes of ended sessions that published here -> when to forget them (ms)
-- ARGV[1] epoch of the session's owner
-- ARGV[2] settled: receipts up to this request may be forgotten
-- ARGV[3] previous: the request before the first that was sent here and is not answered yet; 0 if none
-- ARGV[4] generation that the caller has adopted
-- ARGV[5] entries to keep in the stream, about
-- ARGV[6] short hash of the session's id
-- ARGV[7] milliseconds for which the receipts outlive this publish; 0 if the end of the session removes them
-- ARGV[8..] of each publish: request, topic, and value as JSON text
-- Result  {event, answer, ...}  event of the first that was published now, '' if none was, and for each publish
--           version             published: its event has the next number after that of the one published before it
--           {version, event}    published before; {0, ''} if that receipt was forgotten
--         'fenced'              a newer owner published here, or the session has ended
--         'broken'              the previous request was not executed, so these must not be
--         'stale'               the grid is of another generation: the caller must adopt again
--         'emptied'             the stream was deleted: a new generation is needed, as its numbers start again
--
-- Invariant: requests of a session rise in the receipts; a request is executed only if it is above the last of them.
-- What many publishes have in common is looked at once: half of what a publish would cost alone.
local newest, forgotten = 0, 0
local last = redis.call('LINDEX', KEYS[3], -1)
if last then
  local epoch, request, settled = string.match(last, '^(%d+) (%d+) %d+ %S+ (%d+)$')
  if tonumber(ARGV[1]) < tonumber(epoch) then
    return 'fenced'
  end
  newest, forgotten = tonumber(request), tonumber(settled)
elseif redis.call('ZSCORE', KEYS[4], ARGV[6]) then
  return 'fenced'
end
if tonumber(ARGV[8]) > newest and tonumber(ARGV[3]) > newest then
  return 'broken'
end

-- Returns the index of the first receipt of this request or a later one, and that receipt.
local function find(request)
  local low, high, found = 0, redis.call('LLEN', KEYS[3]) - 1, nil
  while low <= high do
    local middle = math.floor((low + high) / 2)
    local receipt = redis.call('LINDEX', KEYS[3], middle)
    if tonumber(string.match(receipt, '^%d+ (%d+)')) < request then
      low = middle + 1
    else
      high, found = middle - 1, receipt
    end
  end
  return low, found
end

local fields, receipts = {}, {}
-- Stores what the stream has already.
local function write()
  local count = #receipts
  if count == 0 then
    return
  end
  redis.call('HSET', KEYS[1], unpack(fields))
  local kept = redis.call('RPUSH', KEYS[3], unpack(receipts))
  fields, receipts = {}, {}
  if ARGV[7] ~= '0' then
    redis.call('PEXPIRE', KEYS[3], ARGV[7])
  end
  -- Forgetting in bunches costs a fraction of forgetting one by one; a settled receipt that is still here is not used.
  if kept % 16 < count then
    local forget = math.min(find(tonumber(ARGV[2]) + 1), kept - 1)
    if forget > 0 then
      redis.call('LTRIM', KEYS[3], forget, -1)
    end
  end
end

local topics = {}
for index = 9, #ARGV, 3 do
  topics[#topics + 1] = ARGV[index]
end
local stored = redis.call('HMGET', KEYS[1], unpack(topics))
-- Versions never fall back, even if the grid lost some: each generation starts above all that came before (P6).
local least = (ARGV[4] - 1) * 4294967296
local versions, result = {}, {''}
for number, topic in ipairs(topics) do
  local at = 5 + 3 * number
  local request = tonumber(ARGV[at])
  if request > newest then
    local version = versions[topic]
    if not version then
      version = math.max(stored[number] and tonumber(string.match(stored[number], '^%d+')) or 0, least)
    end
    version = version + 1
    local text = string.format('%.0f', version)
    local value = ARGV[at + 2]
    local event = redis.pcall('XADD', KEYS[2], 'MAXLEN', '~', ARGV[5], ARGV[4] .. '-*', topic, text .. ' ' .. value)
    if type(event) == 'table' then
      write()
      if string.find(event.err, 'equal or smaller', 1, true) then
        return 'stale'
      end
      return redis.error_reply(event.err)
    end
    if string.sub(event, -2) == '-0' then
      -- The marker is missing: the stream was deleted under a running process.
      redis.call('DEL', KEYS[2])
      return 'emptied'
    end
    versions[topic] = version
    fields[#fields + 1] = topic
    fields[#fields + 1] = text .. ' ' .. event .. ' ' .. value
    receipts[#receipts + 1] = ARGV[1] .. ' ' .. ARGV[at] .. ' ' .. text .. ' ' .. event .. ' ' .. ARGV[2]
    newest, forgotten = request, tonumber(ARGV[2])
    result[number + 1] = version
    if result[1] == '' then
      result[1] = event
    end
  else
    local answer = {0, ''}
    if request > forgotten then
      write()
      local _, receipt = find(request)
      if receipt then
        local done, version, event = string.match(receipt, '^%d+ (%d+) (%d+) (%S+)')
        if done == ARGV[at] then
          answer = {tonumber(version), event}
        end
      end
    end
    result[number + 1] = answer
  end
end
write()
return result
