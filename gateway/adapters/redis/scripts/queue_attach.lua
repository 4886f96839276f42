#!lua flags=allow-oom
-- Let a session consume from a queue, or go on by a newer epoch or with another credit.
--
-- KEYS[1] to KEYS[12]  queue.lua
-- KEYS[13] consuming  hash  of the session in this partition: queue -> ''
-- KEYS[14] closed     zset  short hashes of ended sessions -> when to forget them (ms)
-- ARGV[1..3] queue.lua
-- ARGV[4] session
-- ARGV[5] epoch of its owner
-- ARGV[6] short hash of its id
-- ARGV[7] messages that it may hold
-- ARGV[8] bounds of the queue, as in queue_send.lua
-- ARGV[9] queues that the partition may hold
-- ARGV[10] consumers that the queue may have
-- Result  {last entry of the deliveries, newest tag before this step, and of each message that it holds: tag, id, failed
--         deliveries, '1' if somebody may have received it before}
--         'fenced': a newer owner was here, or the session has ended; 'stale': the caller must adopt the grid again;
--         'consumers' or 'queues': there are as many as there may be; 'none': nobody has declared it
--
-- Invariant: the epoch of a consumer only rises (P3). Who attaches is told of each message that it holds, once here or once
-- by what follows the entry that is named.
local session, epoch = ARGV[4], ARGV[5]
if not open(ARGV[8]) then
  return 'stale'
end
if redis.call('ZSCORE', KEYS[14], ARGV[6]) then
  return 'fenced'
end
if is_undeclared() then
  return 'none'
end
local each = consumer(session)
if each and tonumber(each[1]) > tonumber(epoch) then
  return 'fenced'
end
local before = meta[3]
if not each then
  if redis.call('HLEN', CONSUMERS) >= tonumber(ARGV[10]) then
    return 'consumers'
  end
  if not known and redis.call('HLEN', QUEUES) - 1 >= tonumber(ARGV[9]) then
    return 'queues'
  end
  meta[3] = meta[3] + 1
  each = {epoch, 0, 0, 0, text(meta[3]), 0}
  consumers[session] = each
  redis.call('HSET', KEYS[13], queue, '')
end
each[1], each[2] = epoch, tonumber(ARGV[7])
touched[session] = each
if meta[4] == '' then
  meta[4] = session
end
prepare_told(DELIVERIES, ARGV[2])
fire()
assign({}, session)
close()
local result = {last_of(DELIVERIES)[1], text(before)}
for _, member in ipairs(redis.call('ZRANGEBYLEX', HELD, '[' .. session .. ' ', '(' .. session .. '!')) do
  local tag, id = string.match(member, ' (%d+) (%d+)$')
  local failed, again = failures(id)
  result[#result + 1] = text(tonumber(tag))
  result[#result + 1] = id
  result[#result + 1] = failed
  result[#result + 1] = again and '1' or '0'
end
return result
