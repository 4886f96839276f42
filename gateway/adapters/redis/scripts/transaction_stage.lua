#!lua
-- Add an operation to a transaction that is open.
--
-- KEYS[1] to KEYS[6], ARGV[1..8]  transactions.lua
-- ARGV[9] request that asks for it
-- ARGV[10] bytes that it counts for
-- ARGV[11] operations that a transaction may have
-- ARGV[12] bytes that those of the session may have
-- ARGV[13] the operation
-- Result  'ok', 'unknown': there is no such transaction that is open; 'size': it would be too large;
--         'fenced', {'gone', reason}, 'stale' as of session_change.lua
--
-- Invariant: an operation is in it if, and only if, its request was answered so. A request that was refused, for its size or by
-- a Redis that was full, may be asked again after later ones were added: it is judged anew, and has its place before them.
local refused = check_owner()
if refused then
  return refused
end
local record = read_record()
if not record or record.state ~= 'o' then
  return 'unknown'
elseif when_due(record) <= now and sure then
  forget_record(record)
  return 'unknown'
elseif redis.call('HEXISTS', OPERATIONS, operation(ARGV[9])) == 1 then
  return 'ok'
end
local held = tonumber(ARGV[10])
for _, other in pairs(list_records()) do
  held = held + (other.state ~= 'd' and other.bytes or 0)
end
record.used = now
if record.count >= tonumber(ARGV[11]) or held > tonumber(ARGV[12]) then
  write_record(record)
  return 'size'
end
record.count, record.bytes = record.count + 1, record.bytes + ARGV[10]
redis.call('HSET', OPERATIONS, operation(ARGV[9]), ARGV[13])
write_record(record)
return 'ok'
