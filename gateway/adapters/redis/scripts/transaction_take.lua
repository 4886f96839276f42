#!lua flags=allow-oom
-- Take a transaction, to bring it to an end.
--
-- KEYS[1] to KEYS[6], ARGV[1..8]  transactions.lua
-- ARGV[9] 'commit' or 'drop', asked for by the client; 'reap' by whoever looks after the partition: what is overdue
-- ARGV[10] request that asks for the commit
-- ARGV[11] settled: outcomes of commits up to this request may be forgotten
-- Result  {state, turn, outcome, operations, operation, ...}, of one that is done without the operations; 'unknown': there is
--         none, by now; 'alive': it is not overdue; 'fenced', {'gone', reason}, 'stale' as of session_change.lua
--
-- Invariant: what is open is committed by a request of its client and by nothing else. What is being prepared is taken
-- over from whoever prepares it, who decides nothing any more.
local refused = check_owner()
if refused then
  return refused
end
forget_settled(tonumber(ARGV[11]))
local record = read_record()
local mode = ARGV[9]
if not record then
  schedule()
  return 'unknown'
end
local due = when_due(record)
if mode == 'reap' and (not due or due > now or not sure) then
  schedule()
  return 'alive'
end
if record.state == 'o' then
  if mode ~= 'commit' or (due <= now and sure) then
    forget_record(record)
    return 'unknown'
  end
  record.state, record.turn, record.request = 'p', record.turn + 1, tonumber(ARGV[10])
elseif record.state == 'p' then
  record.turn = record.turn + 1
  if mode == 'drop' or redis.call('EXISTS', SESSION) == 0 then
    record.state, record.outcome = 'r', 'unknown'
  end
elseif record.state == 'd' then
  if mode ~= 'commit' or record.request ~= tonumber(ARGV[10]) then
    return 'unknown'
  end
  return {'d', whole(record.turn), record.outcome, whole(record.count)}
end
record.used = now
write_record(record)
local result, places = {record.state, whole(record.turn), record.outcome, whole(record.count)}, list_operations(record)
if #places > 0 then
  for place, stored in ipairs(redis.call('HMGET', OPERATIONS, unpack(places))) do
    result[4 + place] = stored
  end
end
return result
