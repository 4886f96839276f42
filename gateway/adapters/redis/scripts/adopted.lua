#!lua flags=allow-oom
-- Note that a generation is open in every partition, so that from now on a partition without its mark has lost it.
--
-- KEYS[1] grid  hash  run_id, generation, seal, opened, term
-- ARGV[1] seal of the generation that the caller has opened everywhere
-- Result  1, or 0 if it is not the one in force any more: the caller must adopt again
--
-- Invariant: opened never names a generation that is not open everywhere, whoever opened it.
local stored = redis.call('HMGET', KEYS[1], 'seal', 'generation')
if stored[1] ~= ARGV[1] then
  return 0
end
redis.call('HSET', KEYS[1], 'opened', stored[2])
return 1
