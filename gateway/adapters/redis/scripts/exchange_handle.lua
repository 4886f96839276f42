#!lua
-- Say what a session handles in a partition, in place of what it said before.
--
-- KEYS[1] to KEYS[14]  exchange.lua
-- ARGV[1..3] exchange.lua
-- ARGV[4..7] queue_receipts.lua, of which [5] and [7] mean nothing here
-- ARGV[8] questions that it may have at a time
-- ARGV[9] '1' if its client is there
-- ARGV[10] its principal
-- ARGV[11] handlers, by session and selector, that the partition may have
-- ARGV[12] different selectors that it may have
-- ARGV[13..] its selectors; none if it handles nothing any more
-- Result  {last entry of the exchanges, and of each question that it has: tag, asker, number}
--         'fenced': a newer owner was here, or the session has ended; 'stale': the caller must adopt the grid again;
--         'full': there are as many as there may be
--
-- Invariant: the epoch of a handler only rises (P3). Who says it is told of each question that the session has, once here
-- or once by what follows the entry that is named.
if not open() then
  return 'stale'
end
local each = handler(session)
if not open_receipts() or (each and each.epoch > tonumber(epoch)) then
  return 'fenced'
end
fire()
each = handler(session) or {has = 0, served = turn, selectors = {}, placed = {}}
local before, after, wanted = {}, {}, {}
for _, selector in ipairs(each.selectors) do
  before[selector] = true
end
local fresh = 0
for at = 13, #ARGV do
  if not after[ARGV[at]] then
    after[ARGV[at]] = true
    wanted[#wanted + 1] = ARGV[at]
    if not before[ARGV[at]] then
      fresh = fresh + 1
    end
  end
end
if fresh > 0 then
  local selectors, handlers = redis.call('HLEN', SELECTORS), redis.call('ZCARD', ORDER) / 2
  if handlers + fresh > tonumber(ARGV[11]) or selectors + fresh > tonumber(ARGV[12]) then
    close()
    return 'full'
  end
end
local changed = false
for _, selector in ipairs(wanted) do
  if not before[selector] and redis.call('HINCRBY', SELECTORS, selector, 1) == 1 then
    changed = true
  end
end
for selector in pairs(before) do
  if not after[selector] and redis.call('HINCRBY', SELECTORS, selector, -1) <= 0 then
    redis.call('HDEL', SELECTORS, selector)
    changed = true
  end
end
if changed then
  turn = turn + 1
  revision = ARGV[1] .. '.' .. text(turn)
end
each.epoch, each.most, each.away, each.selectors = tonumber(epoch), tonumber(ARGV[8]), ARGV[9] ~= '1', wanted
each.principal = digest(ARGV[10])
store_handler(session, each)
if #wanted > 0 then
  redis.call('HSET', CONSUMING, '?/', '')
end
close()
local result = {position()}
for _, member in ipairs(redis.call('ZRANGEBYLEX', HELD, '[' .. session .. ' ', '(' .. session .. '!')) do
  local tag, asker, number = string.match(member, ' (%d+) (%S+) (%d+)$')
  result[#result + 1] = text(tonumber(tag))
  result[#result + 1] = asker
  result[#result + 1] = number
end
return result
