#!lua flags=allow-oom
-- Begin the removal of a shared durable subscription: from now on nobody opens it, until its queue is removed, and it with it.
--
-- KEYS[1], KEYS[2]  durable.lua
-- ARGV[1], ARGV[2]  durable.lua
-- ARGV[3] '1' to do so only if its life is over
-- Result  1 if its removal has begun, now or before; 0 if there is none, it is not shared, or its life is not over
--
-- Invariant: a removal that was begun is found, whoever dies: by who looks for what is over, and by who opens it.
-- Needs clock.lua and durable.lua.
local each = read()
if not each or (each.session ~= SHARED and each.session ~= REMOVING) then
  return 0
end
if each.session == SHARED then
  local over = tonumber(redis.call('ZSCORE', INDEX, entry) or NEVER)
  if ARGV[3] == '1' and (over > now or not sure) then
    return 0
  end
  each.session = REMOVING
  write(each, '0')
end
return 1
