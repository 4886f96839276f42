#!lua flags=allow-oom
-- Somebody watches trees of some partitions from now on, for a while.
--
-- KEYS[1] watched  string  of a partition, and so on for each; presence.lua
-- ARGV[1] for how long (ms)
-- Result  for each partition since when somebody watches, '' if all is told there
--
-- Invariant: what came while nobody watched is not told of all until somebody says so who has begun since.
local answer = {}
for at, key in ipairs(KEYS) do
  local last, since, all = string.match(redis.call('GET', key) or '', '^(%d+) (%d+) ([01])$')
  if not last or tonumber(last) <= now then
    last, since, all = 0, string.format('%.0f', now), '0'
  end
  redis.call('SET', key, string.format('%.0f %s %s', math.max(last, now + ARGV[1]), since, all))
  answer[at] = all == '1' and '' or since
end
return answer
