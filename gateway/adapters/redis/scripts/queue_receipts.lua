-- Precedes the steps of a queue that a session's request asks for; each is executed once (P5).
--
-- KEYS[13] receipts  list  of the session in this partition, as in topic_publish.lua, which shares it: what a send or a
--                          settlement leaves has an id or a number in the place of the version, and one of "s" (sent),
--                          "-" (not sent, for lack of room; the number is 2, and was 0) and "a" (settled, all but so many)
--                          in the place of the event. A receipt of another kind of request tells nothing
-- KEYS[14] closed    zset  short hashes of ended sessions -> when to forget them (ms)
-- ARGV[4] epoch of the session's owner
-- ARGV[5] settled: receipts up to this request may be forgotten
-- ARGV[6] short hash of the session's id
-- ARGV[7] milliseconds for which the receipts outlive this step, or its repetition
--
-- Invariant: requests of a session rise in the receipts; a request is executed only if it is above the last of them.
local RECEIPTS, CLOSED = KEYS[13], KEYS[14]
local epoch, settled, hash, life = unpack(ARGV, 4, 7)
local newest_request, received, renewed = 0, {}, false

-- Returns false if a newer owner has been here, or the session has ended.
local function open_receipts()
  local last = redis.call('LINDEX', RECEIPTS, -1)
  if last then
    local owner, request = string.match(last, '^(%d+) (%d+) ')
    newest_request = tonumber(request)
    return tonumber(epoch) >= tonumber(owner)
  end
  return not redis.call('ZSCORE', CLOSED, hash)
end

-- Returns the index of the first receipt of this request or a later one, and what that says.
local function find_receipt(request)
  local low, high, number, what, of = 0, redis.call('LLEN', RECEIPTS) - 1, nil, nil, nil
  while low <= high do
    local middle = math.floor((low + high) / 2)
    local other, version, event = string.match(redis.call('LINDEX', RECEIPTS, middle), '^%d+ (%d+) (%d+) (%S+)')
    if tonumber(other) < request then
      low = middle + 1
    else
      high, number, what, of = middle - 1, version, event, tonumber(other)
    end
  end
  if of ~= request then
    number, what = nil, nil
  end
  return low, number, what
end

local function receive(request, number, what)
  received[#received + 1] = epoch .. ' ' .. request .. ' ' .. number .. ' ' .. what .. ' ' .. settled
  newest_request = tonumber(request)
end

local function close_receipts()
  if #received == 0 then
    if not renewed then
      -- Whoever repeats may do so again. What is answered is true also where Redis refuses to write.
      redis.pcall('PEXPIRE', RECEIPTS, life)
      renewed = true
    end
    return
  end
  local count = redis.call('RPUSH', RECEIPTS, unpack(received))
  redis.call('PEXPIRE', RECEIPTS, life)
  -- Forgetting in bunches costs a fraction of forgetting one by one; a settled receipt that is still here is not used.
  if count % 16 < #received then
    local forget = math.min(find_receipt(tonumber(settled) + 1), count - 1)
    if forget > 0 then
      redis.call('LTRIM', RECEIPTS, forget, -1)
    end
  end
end
