#!lua flags=allow-oom
-- Settle what a consumer holds, and give it and others what is ready for the credit that it gets back.
--
-- KEYS[1] to KEYS[12]  queue.lua
-- KEYS[13], KEYS[14]  queue_receipts.lua
-- ARGV[1..3]   queue.lua
-- ARGV[4..7]   queue_receipts.lua
-- ARGV[8] session
-- ARGV[9] newest tag that its client has received
-- ARGV[10..] for each step: request, 0 for none; 'a' to accept, 'd' to reject, 'r' to release; delay of what is released
--         (ms); how many messages; and of each of these its tag in 16 digits and its id
-- Result  for each step {} if the session held all of them, {number, ...} with the numbers, from 1, of those that it did
--         not hold, or '=<count>' if it was executed before and so many were not held then, though it consumes no more;
--         'fenced': a newer owner was here, or the session has ended; 'stale': the caller must adopt the grid again
--
-- Invariant: a message is settled by whoever holds it, by the assignment by which it holds it (P15), and once.
local session = ARGV[8]
if not open() then
  return 'stale'
end
local each = consumer(session)
if not open_receipts() or (each and tonumber(each[1]) > tonumber(epoch)) then
  return 'fenced'
end
if not each then
  -- It holds nothing; but what was executed while it consumed was.
  local result, at = {}, 10
  while at <= #ARGV do
    local request, count, answer = tonumber(ARGV[at]), tonumber(ARGV[at + 3]), {}
    local _, number, what
    if request > 0 and request <= newest_request then
      close_receipts()
      _, number, what = find_receipt(request)
    end
    for place = 1, what == 'a' and 0 or count do
      answer[place] = place
    end
    result[#result + 1] = what == 'a' and '=' .. number or answer
    at = at + 4 + 2 * count
  end
  return result
end
each[1] = epoch
each[4] = math.max(each[4], tonumber(ARGV[9]))
touched[session] = each
local result, at = {}, 10
while at <= #ARGV do
  local request, outcome, delay, count = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  local answer = {}
  if request ~= '0' and tonumber(request) <= newest_request then
    close_receipts()
    received = {}
    local _, number, what = find_receipt(tonumber(request))
    answer = '=' .. (what == 'a' and number or '0')
  elseif count > 0 then
    local members, ids = {}, {}
    for number = 1, count do
      local tag, id = ARGV[at + 2 + 2 * number], ARGV[at + 3 + 2 * number]
      members[number], ids[number] = session .. ' ' .. tag .. ' ' .. id, id
    end
    local scores = redis.call('ZMSCORE', HELD, unpack(members))
    local theirs, gone = {}, {}
    for number = 1, count do
      -- What is named twice is settled once.
      if scores[number] and not gone[members[number]] then
        gone[members[number]] = true
        theirs[#theirs + 1] = members[number]
        gone[#gone + 1] = ids[number]
      else
        answer[#answer + 1] = number
      end
    end
    if #theirs > 0 then
      redis.call('ZREM', HELD, unpack(theirs))
      each[3] = each[3] - #theirs
      if has_timers then
        for _, member in ipairs(theirs) do
          drop_timer('a' .. member)
        end
      end
      if outcome == 'a' then
        for _, id in ipairs(gone) do
          meta[1] = meta[1] - size_of(id)
          drop_timer('e' .. id)
        end
        redis.call('HDEL', MESSAGES, unpack(gone))
        if has_notes then
          redis.call('HDEL', NOTES, unpack(gone))
        end
      else
        for _, id in ipairs(gone) do
          if outcome == 'd' then
            bury(id, (failures(id)), 'rejected')
          else
            give_back(id, true, delay)
          end
        end
      end
    end
  end
  if request ~= '0' and type(answer) == 'table' then
    receive(request, #answer, 'a')
  end
  result[#result + 1] = answer
  at = at + 4 + 2 * count
end
fire()
assign({})
close_receipts()
close()
return result
