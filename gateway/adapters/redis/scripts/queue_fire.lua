#!lua flags=allow-oom
-- Do what is due in a queue: delays, expiry, messages that are held too long.
--
-- KEYS[1] to KEYS[12]  queue.lua
-- ARGV[1..3] queue.lua
-- Result  1 if there may be more to do, else 0; 'stale': the caller must adopt the grid again
--
-- Invariant: asked by many, or twice, the same comes of it. A bounded part is done in one step.
if not open() then
  return 'stale'
end
fire()
timed = true
assign({})
close()
return behind and 1 or 0
