#!lua flags=allow-oom
-- Tell a living node that sessions were claimed from it.
--
-- KEYS[1] leases  zset    node -> end of its lease (ms)
-- KEYS[2] inbox   stream  what others told the node
-- ARGV[1] node
-- ARGV[2] messages to keep, about
-- ARGV[3..] what to tell
-- Result  1 told, 0 the node has no lease
--
-- Invariant: a node without lease gets no inbox, so none is left behind.
-- Needs clock.lua.
local ends = redis.call('ZSCORE', KEYS[1], ARGV[1])
if not ends or tonumber(ends) <= now then
  return 0
end
if type(redis.pcall('XLEN', KEYS[2])) == 'table' then
  -- What is there in its place cannot have come from the gateway.
  redis.call('DEL', KEYS[2])
end
for index = 3, #ARGV do
  redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[2], '*', 'claimed', ARGV[index])
end
return 1
