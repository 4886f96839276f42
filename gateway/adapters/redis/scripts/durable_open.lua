#!lua
-- Let a session use a durable subscription, which is made if there is none.
--
-- KEYS[1], KEYS[2]  durable.lua
-- KEYS[3] consuming  hash  of the session in this partition: "/" and [principal,name] -> ''; queue -> ''
-- KEYS[4] closed     zset  short hashes of ended sessions -> when to forget them (ms)
-- ARGV[1], ARGV[2]  durable.lua
-- ARGV[3] session
-- ARGV[4] epoch of its owner
-- ARGV[5] short hash of its id
-- ARGV[6] position of one that is made, '-' for the beginning; '' if none is to be made
-- ARGV[7] session that it is taken from; '' for none
-- ARGV[8] how long it outlives its last use (ms)
-- ARGV[9] most of one principal
-- ARGV[10] most of the partition
-- ARGV[11] '+' if any number of sessions may use it, else '-'
-- ARGV[12] selector
-- Result  {position, 1 if it was made now}; {'used', session}: another one uses it; {'other', selector}: it is for
--         other topics, or shared and should not be, or the other way; 'absent': there is none; 'removing': its
--         removal was begun; 'full': there are as many as there may be; 'fenced': a newer owner of the session was here, or the session has ended
--
-- Invariant: one session uses it, by an epoch that only rises (P3). The end of a session finds all that it uses.
-- Needs clock.lua and durable.lua.
local session, epoch = ARGV[3], ARGV[4]
if redis.call('ZSCORE', KEYS[4], ARGV[5]) then
  return 'fenced'
end
local each, created = read(), 0
if each and each.session == REMOVING then
  return 'removing'
end
if not each then
  if ARGV[6] == '' then
    return 'absent'
  end
  if redis.call('HLEN', MINE) >= tonumber(ARGV[9]) or redis.call('ZCARD', INDEX) >= tonumber(ARGV[10]) then
    return 'full'
  end
  each = {made = string.format('%.0f', now), session = ARGV[11], epoch = '0', position = ARGV[6]}
  each.selector, created = ARGV[12], 1
end
if each.selector ~= ARGV[12] or (each.session == SHARED) ~= (ARGV[11] == SHARED) then
  return {'other', each.selector}
end
if each.session == SHARED then
  -- Who consumes is known to its queue; here it is only kept from being forgotten.
  each.life = ARGV[8]
  write(each, string.format('%.0f', now + tonumber(each.life)))
  return {each.position, created}
end
if each.session == session then
  if tonumber(each.epoch) > tonumber(epoch) then
    return 'fenced'
  end
elseif each.session ~= '-' and each.session ~= ARGV[7] then
  return {'used', each.session}
end
each.session, each.epoch, each.life = session, epoch, ARGV[8]
redis.call('HSET', KEYS[3], '/' .. entry, '')
write(each, NEVER)
return {each.position, created}
