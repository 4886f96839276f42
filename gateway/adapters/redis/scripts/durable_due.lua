#!lua flags=no-writes
-- List durable subscriptions of a partition whose life is over.
--
-- KEYS[1] index  zset  [principal,name] -> when it is forgotten (ms); durable.lua
-- ARGV[1] most to list
-- Result  their names, those that are over longest first
-- Needs clock.lua: nothing is listed for who is not sure of the time.
return not sure and {} or redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, ARGV[1])
