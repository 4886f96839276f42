#!lua flags=allow-oom
-- Answer questions that a session was given, each exactly once, in the order of its requests.
--
-- KEYS[1] to KEYS[14]  exchange.lua
-- ARGV[1..3] exchange.lua
-- ARGV[4..7] queue_receipts.lua
-- ARGV[8] bytes of questions and answers that the partition may hold; 0 for no limit
-- ARGV[9..] for each answer: request, tag, asker, number, 'v' or 'f' and the answer, or why there is none
-- Result  for each 'ok', or 'over' if the session did not have the question, after '=' if that was so before
--         'fenced': a newer owner was here, or the session has ended; 'stale': the caller must adopt the grid again
--
-- Invariant: a question is answered by whoever has it, and once.
if not open() then
  return 'stale'
end
local each = handler(session)
if not open_receipts() or (each and each.epoch > tonumber(epoch)) then
  return 'fenced'
end
fire()
local results = {}
local most_bytes = tonumber(ARGV[8])
for at = 9, #ARGV, 5 do
  local request, id = ARGV[at], ARGV[at + 2] .. ' ' .. ARGV[at + 3]
  local answer
  if tonumber(request) <= newest_request then
    close_receipts()
    received = {}
    local _, number, what = find_receipt(tonumber(request))
    answer = what == 'w' and number == '1' and '=over' or '=ok'
  else
    local found = question_now(id)
    if found and found.state ~= 'o' and found.handler == session and found.tag == tonumber(ARGV[at + 1]) then
      local how, words = string.sub(ARGV[at + 4], 1, 1), string.sub(ARGV[at + 4], 2)
      if most_bytes > 0 and bytes - found.size + QUESTION_BYTES + #words > most_bytes then
        how, words = 'x', ''
      end
      finish(id, found, how, words)
      answer = 'ok'
    else
      answer = 'over'
    end
    receive(request, answer == 'ok' and '0' or '1', 'w')
  end
  results[#results + 1] = answer
end
close_receipts()
close()
return results
