#!lua flags=no-writes
-- List queues of a partition in which something is due.
--
-- KEYS[1] due  zset  queue -> when its first timer is over (ms)
-- ARGV[1] most to list
-- Result  queues, those due longest first
-- Needs clock.lua: nothing is listed for who is not sure of the time.
return not sure and {} or redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, ARGV[1])
