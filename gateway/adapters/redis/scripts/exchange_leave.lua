#!lua flags=allow-oom
-- Forget a session that has ended: what it asked, and that it handles. What it has taken is over, the rest is others'.
--
-- KEYS[1] to KEYS[14]  exchange.lua
-- ARGV[1..3] exchange.lua
-- Result  1; 'stale': the caller must adopt the grid again
--
-- Invariant: nothing of the session is left in the partition (P7), but how questions ended that it had.
if not open() then
  return 'stale'
end
local each = handler(session)
if each then
  for _, selector in ipairs(each.selectors) do
    if redis.call('HINCRBY', SELECTORS, selector, -1) <= 0 then
      redis.call('HDEL', SELECTORS, selector)
    end
  end
  turn = turn + 1
  revision = ARGV[1] .. '.' .. text(turn)
  each.selectors = {}
  store_handler(session, each)
end
for _, member in ipairs(redis.call('ZRANGEBYLEX', HELD, '[' .. session .. ' ', '(' .. session .. '!')) do
  local id = string.match(member, '^%S+ %d+ (%S+ %d+)$')
  local found = question(id)
  if found and found.state == 't' then
    finish(id, found, 'L', '')
  elseif found and found.directed == 'p' then
    finish(id, found, 'l', '')
  elseif found then
    take_away(id, found)
    found.handler = '-'
    store_question(id, found)
    pass_on(id, found)
  end
end
for _, id in ipairs(redis.call('ZRANGEBYLEX', ASKED, '[' .. session .. ' ', '(' .. session .. '!')) do
  local found = question(id)
  if found then
    forget(id, found)
  else
    redis.call('ZREM', ASKED, id)
  end
end
redis.call('HDEL', HANDLERS, session)
redis.call('HDEL', CONSUMING, '?/')
fire()
close()
return 1
