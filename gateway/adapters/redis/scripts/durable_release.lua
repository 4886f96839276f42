#!lua flags=allow-oom
-- Let a session use a durable subscription no more; its life begins to run out.
--
-- KEYS[1], KEYS[2]  durable.lua
-- KEYS[3] consuming  hash  of the session in this partition: "/" and [principal,name] -> ''; queue -> ''
-- ARGV[1], ARGV[2]  durable.lua
-- ARGV[3] session
-- ARGV[4] epoch of its owner; '' if the session has ended, whoever owned it
-- Result  1; 0 if it did not use it; 'fenced': a newer owner of the session was here
--
-- Invariant: nothing of the session is left, and the place stays. Needs clock.lua and durable.lua.
local each = read()
if each and each.session == ARGV[3] and ARGV[4] ~= '' and tonumber(each.epoch) > tonumber(ARGV[4]) then
  return 'fenced'
end
redis.call('HDEL', KEYS[3], '/' .. entry)
if not each or each.session ~= ARGV[3] then
  return 0
end
each.session, each.epoch = '-', '0'
write(each, string.format('%.0f', now + tonumber(each.life)))
return 1
