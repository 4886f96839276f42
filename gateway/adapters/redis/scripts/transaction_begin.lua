#!lua
-- Begin a transaction of a session.
--
-- KEYS[1] to KEYS[6], ARGV[1..8]  transactions.lua
-- ARGV[9] settled: outcomes of commits up to this request may be forgotten
-- ARGV[10] milliseconds without a request of it after which it is rolled back
-- ARGV[11] milliseconds after which it is rolled back in any case
-- ARGV[12] most that the session may have open
-- Result  'ok', 'transactions': it has as many as it may; 'fenced', {'gone', reason}, 'stale' as of session_change.lua
--
-- Invariant: asked twice, there is one.
local refused = check_owner()
if refused then
  return refused
end
if redis.call('HEXISTS', RECORDS, ARGV[8]) == 1 then
  return 'ok'
end
forget_settled(tonumber(ARGV[9]))
local open = 0
for _, record in pairs(list_records()) do
  open = open + (record.state ~= 'd' and 1 or 0)
end
if open >= tonumber(ARGV[12]) then
  return 'transactions'
end
write_record({
  state = 'o', turn = 0, request = 0, begun = now, used = now, count = 0, bytes = 0,
  wait = tonumber(ARGV[10]), latest = now + ARGV[11], outcome = '-',
  generation = tonumber(ARGV[2]),
})
return 'ok'
