#!lua flags=allow-oom
-- Extend a lease that holds, and look around.
--
-- KEYS[1] grid     hash    run_id, generation, seal, term, watched: until when somebody watches the system's topics (ms)
-- KEYS[2] leases   zset    node -> end of its lease (ms)
-- KEYS[3] members  hash    node -> "<length of its lease in ms> <term>"
-- KEYS[4] renewed  string  when any node last took or renewed a lease (ms)
-- ARGV[1] node
-- ARGV[2] length (ms)
-- ARGV[3] for how long all shall know from now on that somebody watches at this node (ms); 0 if nobody does
-- Result  {seal of the generation, nodes alive, nodes lapsed, term, 1 if somebody watches, else 0}, or {seal} if the lease
--         lapsed; '' for the seal of a grid that nobody has adopted
--
-- Invariant: a lapsed lease is never extended here, whether or not anyone has taken over yet.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local seal = redis.call('HGET', KEYS[1], 'seal') or ''
local ends = redis.call('ZSCORE', KEYS[2], ARGV[1])
if not ends or tonumber(ends) <= now then
  return {seal}
end
local term = string.match(redis.call('HGET', KEYS[3], ARGV[1]), '%d+$')
redis.call('ZADD', KEYS[2], now + ARGV[2], ARGV[1])
redis.call('HSET', KEYS[3], ARGV[1], ARGV[2] .. ' ' .. term)
redis.call('SET', KEYS[4], string.format('%.0f', now))
local watched = tonumber(redis.call('HGET', KEYS[1], 'watched')) or 0
if ARGV[3] ~= '0' and now + ARGV[3] > watched then
  watched = now + ARGV[3]
  redis.call('HSET', KEYS[1], 'watched', string.format('%.0f', watched))
end
local bound = string.format('%.0f', now)
return {
  seal,
  redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. bound, '+inf'),
  redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', bound),
  tonumber(term),
  watched > now and 1 or 0,
}
