#!lua flags=allow-oom
-- Do what is due in a partition.
--
-- KEYS[1] to KEYS[14]  exchange.lua
-- ARGV[1..3] exchange.lua; the session means nothing here
-- Result  1; 'stale': the caller must adopt the grid again
if not open() then
  return 'stale'
end
fire()
close()
return 1
