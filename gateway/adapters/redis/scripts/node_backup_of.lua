#!lua flags=allow-oom,no-writes
-- Tell which nodes keep copies of the sessions of others.
--
-- KEYS[1] backups  hash  node -> see node_backup.lua
-- ARGV    nodes; none for all
-- Result  {node, backup (JSON), ...}
--
-- Invariant: what is not of this form, or is over, is passed over.
-- Needs clock.lua.
if type(redis.pcall('HLEN', KEYS[1])) ~= 'number' then
  -- What is there in its place cannot have come from the gateway.
  return {}
end
local nodes = ARGV
if #nodes == 0 then
  nodes = redis.call('HKEYS', KEYS[1])
end
local found = {}
for _, node in ipairs(nodes) do
  local ends, backup = string.match(redis.call('HGET', KEYS[1], node) or '', '^%d+ (%d+) (.*)$')
  if ends and (ends == '0' or tonumber(ends) > now) then
    found[#found + 1] = node
    found[#found + 1] = backup
  end
end
return found
