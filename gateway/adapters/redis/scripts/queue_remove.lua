#!lua flags=allow-oom
-- Remove a queue that was declared for a shared subscription, with all that is in it.
--
-- KEYS[1] to KEYS[12]  queue.lua
-- KEYS[13..] consuming hash  of each of its consumers in this partition: queue -> ''; of those that the caller knows
-- ARGV[1..3] queue.lua
-- ARGV[4] '1' to do so although somebody consumes
-- ARGV[5] how long nobody must have used it (ms), unless it is removed in any case
-- Result  1; 0 if there is none; 'used': somebody consumes, or did so lately; 'stale': the caller must adopt the grid again
--
-- Invariant: nothing of it stays, and its ids are not used again. Consumers that are left hold nothing, and of those that
-- the caller did not know yet no more than its name stays, until they end.
if not open() then
  return 'stale'
end
if not meta.source then
  return 0
end
if ARGV[4] ~= '1' then
  if redis.call('HLEN', CONSUMERS) > 0 then
    return 'used'
  end
  local unused = tonumber(ARGV[5])
  if unused > 0 and (not sure or now - (redis.call('HGET', META, 'used') or 0) < unused) then
    return 'used'
  end
end
remove()
for at = 13, #KEYS do
  redis.call('HDEL', KEYS[at], queue)
end
return 1
