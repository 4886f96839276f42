#!lua flags=allow-oom
-- Give links back that a node has.
--
-- KEYS[1] carriers  hash  link -> "<node> <term> <when it ends (ms)>"
-- ARGV[1] the node
-- ARGV[2..] the links
-- Result  1
--
-- Invariant: nobody gives back what another node has.
for at = 2, #ARGV do
  local held = redis.call('HGET', KEYS[1], ARGV[at])
  if held and string.match(held, '^%S+') == ARGV[1] then
    redis.call('HDEL', KEYS[1], ARGV[at])
  end
end
return 1
