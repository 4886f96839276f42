#!lua flags=allow-oom
-- List sessions of a partition whose deadline is over, and forget old reasons.
--
-- KEYS[1] deadlines  zset  id -> end of its window (ms)
-- KEYS[2] ended      zset  "<reason>:<short hash>" of ended sessions -> when to forget it (ms)
-- ARGV[1] how many to leave out that are due for longest
-- ARGV[2] most to list
-- Result  ids, those due longest first
-- Needs clock.lua: nothing is listed or forgotten for who is not sure of the time.
if not sure then
  return {}
end
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
return redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', ARGV[1], ARGV[2])
