#!lua flags=allow-oom
-- Move the cursor of a hook in one stream of the journal.
--
-- KEYS[1] state    hash    see hook_read.lua
-- ARGV[1] the hook
-- ARGV[2] term of the node that delivers
-- ARGV[3] incarnation of the stream
-- ARGV[4] the place
-- ARGV[5] events passed
-- Result  1; 0 if a node of a later term delivers, or nobody any more: nothing was changed then
--
-- Invariant: nobody moves a cursor that a node of a later term has read.
local held = redis.call('HGET', KEYS[1], 'hook:' .. ARGV[1])
local term = held and tonumber(string.match(held, '^%d+'))
if not term or term > tonumber(ARGV[2]) then
  return 0
end
redis.call('HSET', KEYS[1], 'hook:' .. ARGV[1], ARGV[2] .. ' ' .. ARGV[3] .. ' ' .. ARGV[4] .. ' ' .. ARGV[5])
return 1
