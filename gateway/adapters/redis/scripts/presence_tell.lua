#!lua flags=allow-oom
-- Tell how many members a tree has, if that is due.
--
-- KEYS[1] to KEYS[9], ARGV[1] to ARGV[6]  presence.lua
-- Result  1 if it was due, else 0; 'stale' or 'emptied' as in topic_publish.lua
local at = redis.call('ZSCORE', DUE, tree)
if not at or tonumber(at) > now then
  return 0
end
local listed = read_presence()
return tell_count(listed, 0, true) or 1
