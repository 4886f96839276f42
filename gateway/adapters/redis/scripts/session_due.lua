#!lua flags=allow-oom
-- List sessions of a partition whose deadline is over, and forget old reasons.
--
-- KEYS[1] deadlines  zset  id -> end of its window (ms)
-- KEYS[2] ended      zset  "<reason>:<short hash>" of ended sessions -> when to forget it (ms)
-- ARGV[1] most to list
-- Result  ids, those due longest first
-- Needs clock.lua.
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
return redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, ARGV[1])
