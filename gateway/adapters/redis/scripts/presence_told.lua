#!lua flags=allow-oom
-- All trees of a partition are told of.
--
-- KEYS[1] watched  string  of the partition; presence.lua
-- ARGV[1] since when somebody watches, as the teller was told
-- Result  1, 0 if it is not since then
--
-- Invariant: that is true of the time from then on, as who comes while somebody watches is told of at once.
local last, since = string.match(redis.call('GET', KEYS[1]) or '', '^(%d+) (%d+) [01]$')
if since == ARGV[1] then
  redis.call('SET', KEYS[1], last .. ' ' .. since .. ' 1')
  return 1
end
return 0
