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
-- Invariant: requests of a session rise, so that each is added once.
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
elseif tonumber(ARGV[9]) <= record.newest then
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
record.newest, record.count, record.bytes = tonumber(ARGV[9]), record.count + 1, record.bytes + ARGV[10]
redis.call('HSET', OPERATIONS, ARGV[8] .. '.' .. whole(record.count), ARGV[13])
write_record(record)
return 'ok'
