#!lua flags=allow-oom
-- Note that a generation is open in every partition, so that from now on a partition without its mark has lost it.
--
-- KEYS[1] grid  hash  run_id, generation, opened, term
-- ARGV[1] generation that the caller has opened everywhere
-- Result  1, or 0 if it is not the one in force any more: the caller must adopt again
--
-- Invariant: opened never names a generation that is not open everywhere, whoever opened it.
local generation = redis.call('HGET', KEYS[1], 'generation')
if generation ~= ARGV[1] then
  return 0
end
redis.call('HSET', KEYS[1], 'opened', generation)
return 1
