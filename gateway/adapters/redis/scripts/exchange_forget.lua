#!lua flags=allow-oom
-- Forget questions of a session that are over, since its client knows how they ended.
--
-- KEYS[1] to KEYS[14]  exchange.lua
-- ARGV[1..3] exchange.lua
-- ARGV[4..] numbers of the requests with which they were put
-- Result  1; 'stale': the caller must adopt the grid again
if not open() then
  return 'stale'
end
for at = 4, #ARGV do
  local id = session .. ' ' .. ARGV[at]
  local found = question(id)
  if found and found.state == 'o' then
    forget(id, found)
  end
end
fire()
close()
return 1
