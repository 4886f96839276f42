#!lua flags=allow-oom
-- Forget what is said of a hook, unless somebody has it.
--
-- KEYS[1] holders  hash  hook -> "<node> <term> <when it ends (ms)>"
-- KEYS[2] hooks    hash  hook -> what is said of it; "again <hook>" -> 1
-- ARGV[1] the hook
-- Result  1; 0 if somebody has it: nothing was changed then
--
-- Invariant: nobody's hook is forgotten.
-- Needs clock.lua.
local held = redis.call('HGET', KEYS[1], ARGV[1])
local ends = held and tonumber(string.match(held, '(%d+)$'))
if ends and ends > now then
  return 0
end
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[2], ARGV[1], 'again ' .. ARGV[1])
return 1
