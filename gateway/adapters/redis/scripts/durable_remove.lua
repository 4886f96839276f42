#!lua flags=allow-oom
-- Forget a durable subscription.
--
-- KEYS[1], KEYS[2]  durable.lua
-- ARGV[1], ARGV[2]  durable.lua
-- ARGV[3] session that asks; '' for whoever may; '-' to forget it only if its life is over, '+' to begin another life
--         then, and to remove it no more
-- ARGV[4] with '+', when it was used last (ms); '' for now
-- Result  1; 0 if there was none, or it is not over; otherwise the session that uses it
--
-- Invariant: what is used is not forgotten because its life is over, nor for another session. Needs clock.lua and
-- durable.lua.
local each = read()
if ARGV[3] == '-' or ARGV[3] == '+' then
  local over = redis.call('ZSCORE', INDEX, entry)
  if not over or tonumber(over) > now then
    return 0
  end
  if each and ARGV[3] == '+' then
    each.session = each.session == REMOVING and SHARED or each.session
    write(each, string.format('%.0f', (tonumber(ARGV[4]) or now) + tonumber(each.life)))
    return 0
  end
elseif each and ARGV[3] ~= '' and each.session ~= ARGV[3] then
  if each.session ~= '-' and each.session ~= SHARED and each.session ~= REMOVING then
    return each.session
  end
end
redis.call('HDEL', MINE, name)
redis.call('ZREM', INDEX, entry)
return each and 1 or 0
