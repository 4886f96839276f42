#!lua flags=allow-oom
-- Do what is due in a partition.
--
-- KEYS[1] to KEYS[14]  exchange.lua
-- ARGV[1..3] exchange.lua; the session means nothing here
-- Result  1 if there may be more, else 0; 'stale': the caller must adopt the grid again
if not open() then
  return 'stale'
end
local more = fire()
close()
return more and 1 or 0
