-- Publish one value exactly once (P5), in the order of its session's requests.
--
-- KEYS[1] values    hash    topic -> "<version> <generation>-<sequence> <value>"
-- KEYS[2] stream    stream  entries [topic, "<version> <value>"]
-- KEYS[3] receipts  list    of the session in this partition: "<epoch> <request> <version> <event> <settled>", by request
-- KEYS[4] closed    zset    short hashes of ended sessions that published here -> when to forget them (ms)
-- ARGV[1] topic
-- ARGV[2] value, JSON text
-- ARGV[3] epoch of the session's owner
-- ARGV[4] request
-- ARGV[5] settled: receipts up to this request may be forgotten
-- ARGV[6] previous: the request before it that was sent here and is not answered yet; 0 if none
-- ARGV[7] generation that the caller has adopted
-- ARGV[8] entries to keep in the stream, about
-- ARGV[9] short hash of the session's id
-- ARGV[10] milliseconds for which the receipts outlive this publish; 0 if the end of the session removes them
-- Result  {version, event}            published
--         {version, event, 1}         published before; {0, '', 1} if that receipt was forgotten
--         'fenced'                    a newer owner published here, or the session has ended
--         'broken'                    the previous request was not executed, so this one must not be
--         'stale'                     the grid is of another generation: the caller must adopt again
--         'emptied'                   the stream was deleted: a new generation is needed, as its numbers start again
--
-- Invariant: requests of a session rise in the receipts; a request is executed only if it is above the last of them.
local last = redis.call('LINDEX', KEYS[3], -1)
if last then
  local epoch, request, settled = string.match(last, '^(%d+) (%d+) %d+ %S+ (%d+)$')
  if tonumber(ARGV[3]) < tonumber(epoch) then
    return 'fenced'
  end
  request = tonumber(request)
  if tonumber(ARGV[4]) <= request then
    if tonumber(ARGV[4]) > tonumber(settled) then
      local low, high = 0, redis.call('LLEN', KEYS[3]) - 1
      while low <= high do
        local middle = math.floor((low + high) / 2)
        local done, version, event = string.match(
          redis.call('LINDEX', KEYS[3], middle), '^%d+ (%d+) (%d+) (%S+)'
        )
        if done == ARGV[4] then
          return {tonumber(version), event, 1}
        end
        if tonumber(done) < tonumber(ARGV[4]) then
          low = middle + 1
        else
          high = middle - 1
        end
      end
    end
    return {0, '', 1}
  end
  if tonumber(ARGV[6]) > request then
    return 'broken'
  end
else
  if redis.call('ZSCORE', KEYS[4], ARGV[9]) then
    return 'fenced'
  end
  if ARGV[6] ~= '0' then
    return 'broken'
  end
end

local stored = redis.call('HGET', KEYS[1], ARGV[1])
local version = stored and tonumber(string.match(stored, '^%d+')) or 0
-- Versions never fall back, even if the grid lost some: each generation starts above all that came before (P6).
version = math.max(version, (ARGV[7] - 1) * 4294967296) + 1
local text = string.format('%.0f', version)
local event = redis.pcall('XADD', KEYS[2], 'MAXLEN', '~', ARGV[8], ARGV[7] .. '-*', ARGV[1], text .. ' ' .. ARGV[2])
if type(event) == 'table' then
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
redis.call('HSET', KEYS[1], ARGV[1], text .. ' ' .. event .. ' ' .. ARGV[2])
local receipt = ARGV[3] .. ' ' .. ARGV[4] .. ' ' .. text .. ' ' .. event .. ' ' .. ARGV[5]
local kept = redis.call('RPUSH', KEYS[3], receipt)
if ARGV[10] ~= '0' then
  redis.call('PEXPIRE', KEYS[3], ARGV[10])
end
-- Forgetting in bunches costs a fraction of forgetting one by one; a settled receipt that is still here is not used.
if kept % 16 == 0 then
  local settled = tonumber(ARGV[5])
  local forget = 0
  for index, done in ipairs(redis.call('LRANGE', KEYS[3], 0, math.min(31, kept - 2))) do
    if tonumber(string.match(done, '^%d+ (%d+)')) > settled then
      break
    end
    forget = index
  end
  if forget > 0 then
    redis.call('LTRIM', KEYS[3], forget, -1)
  end
end
return {version, event}
