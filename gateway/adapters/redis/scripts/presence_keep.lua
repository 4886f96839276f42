-- Make a session a member of a tree that nobody watches: the step of presence_enter.lua for that, with a third of the work.
--
-- KEYS[1] presence  hash  presence.lua
-- KEYS[2] members   hash  of the tree; presence.lua
-- KEYS[3] watched   string  presence.lua
-- KEYS[4] to KEYS[6], ARGV[3] to ARGV[5]  presence_owner.lua
-- ARGV[1] tree
-- ARGV[2] what is told of it, JSON text
-- Result  1 if it is a member from now on, 0 if it was one; 'watched' if nothing was done, as there is something to be told
--         or to be told no more; 'fenced' as of presence_enter.lua
--
-- Invariant: as of presence_enter.lua. While nobody watches, a tree that is told of nowhere stays so.
local tree, value = ARGV[1], ARGV[2]
local watched = redis.call('GET', KEYS[3])
if watched and tonumber(string.match(watched, '^%d+') or 0) > now then
  return 'watched'
end
local known = redis.call('HGET', KEYS[1], tree)
local before = redis.call('HGET', KEYS[2], session)
if before == '1' or known and string.sub(known, -2) ~= ' 0' then
  return 'watched'
end
if is_fenced() then
  return 'fenced'
end
if not before then
  redis.call('HSET', OWN, '\n' .. tree, '')
  if not known then
    redis.call('HSET', KEYS[1], tree, '0 0')
  end
end
redis.call('HSET', KEYS[2], session, '0' .. value)
return before and 0 or 1
