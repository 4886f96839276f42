#!lua flags=allow-oom
-- Take questions that a session was given, to send them to its client.
--
-- KEYS[1] to KEYS[14]  exchange.lua
-- ARGV[1..3] exchange.lua
-- ARGV[4..7] queue_receipts.lua, of which [5] and [7] mean nothing here
-- ARGV[8..] for each question: tag, asker, number
-- Result  for each that the session has: its place in the arguments, from 1, milliseconds that are left, '1' if it was
--         taken before, what handlers are given
--         'fenced': a newer owner was here, or the session has ended; 'stale': the caller must adopt the grid again
--
-- Invariant: as in exchange.lua. A session that takes something is there.
if not open() then
  return 'stale'
end
local each = handler(session)
if not open_receipts() or (each and each.epoch > tonumber(epoch)) then
  return 'fenced'
end
fire()
each = handler(session)
if each and (each.away or each.epoch < tonumber(epoch)) then
  each.away, each.epoch = false, tonumber(epoch)
  store_handler(session, each)
end
local result = {}
for at = 8, #ARGV, 3 do
  local id = ARGV[at + 1] .. ' ' .. ARGV[at + 2]
  local found = question_now(id)
  if found and found.state ~= 'o' and found.handler == session and found.tag == tonumber(ARGV[at]) then
    result[#result + 1] = (at - 8) / 3 + 1
    result[#result + 1] = text(found.deadline - now)
    result[#result + 1] = found.state == 't' and '1' or '0'
    result[#result + 1] = redis.call('HGET', TEXTS, id) or 'null'
    if found.state == 'p' then
      found.state = 't'
      store_question(id, found)
      redis.call('ZADD', TIMERS, text(found.deadline), id)
    end
  end
end
close()
return result
