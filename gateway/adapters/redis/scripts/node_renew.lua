#!lua flags=allow-oom
-- Extend a lease that holds, and look around; take the role of the master, or give it up.
--
-- KEYS[1] grid     hash    generation, seal, term, shift, watched: until when somebody watches the system's topics (ms),
--                          master_term: of the newest master, outage_over: when the last outage was over (ms)
-- KEYS[2] leases   zset    node -> end of its lease (ms)
-- KEYS[3] members  hash    node -> "<length of its lease in ms> <term>"
-- KEYS[4] renewed  string  when any node last took or renewed a lease (ms)
-- KEYS[5] clocks   hash    see clock_set.lua
-- KEYS[6] takeovers  hash  expired node -> see takeovers.lua
-- KEYS[7] master   string  "<node> <term>" of the master
-- KEYS[8] saved    hash    see saved.lua
-- ARGV[1] node
-- ARGV[2] length (ms)
-- ARGV[3] for how long all shall know from now on that somebody watches at this node (ms); 0 if nobody does
-- ARGV[4] what the clock of Redis said when it last fitted (ms); 0 if it never did
-- ARGV[5] shift by which it did (ms)
-- ARGV[6] what it said when the node began to follow it by that shift (ms)
-- ARGV[7] how long the node had followed it when it last fitted (ms)
-- ARGV[8] take: the node becomes the master if there is none; keep: it stays what it is; yield: it is not the master
-- ARGV[9] up to when all that happened to the node's sessions is in the grid (ms); '' leaves what it told before
-- ARGV[10] 1 if the caller had to wait for an answer so long that others may have taken the grid for unreachable, else 0
-- Result  {seal of the generation, clock of Redis (ms), shift (ms), nodes alive, nodes expired, term, 1 if somebody
--         watches, else 0, master or '', its term, {node, up to when it has saved all (ms), ...}, when the last outage
--         was over (ms) or ''}, or the first three if the lease expired; '' for the seal of a grid
--         that nobody has adopted
--
-- Invariant: an expired lease is never extended here, whether or not anyone has taken over yet; nor one that
-- another node found expired and takes over, should the caller's own clock have stood still. The master is one node
-- whose lease holds, or nobody, and each has a term above all earlier ones.
-- Needs clock.lua and saved.lua.
local seal = redis.call('HGET', KEYS[1], 'seal') or ''
local shift = tonumber(redis.call('HGET', KEYS[1], 'shift')) or 0
local ends = redis.call('ZSCORE', KEYS[2], ARGV[1])
if not ends or tonumber(ends) <= now or redis.call('HEXISTS', KEYS[6], ARGV[1]) == 1 then
  return {seal, clock, shift}
end
local term = string.match(redis.call('HGET', KEYS[3], ARGV[1]) or '', '%d+$')
if not term then
  -- Broken by another program: the caller joins again, and has one.
  return {seal, clock, shift}
end
redis.call('ZADD', KEYS[2], now + ARGV[2], ARGV[1])
redis.call('HSET', KEYS[3], ARGV[1], ARGV[2] .. ' ' .. term)
redis.call('SET', KEYS[4], string.format('%.0f', now))
if ARGV[4] ~= '0' then
  redis.call('HSET', KEYS[5], ARGV[1], table.concat({ARGV[4], ARGV[5], ARGV[6], ARGV[7]}, ' '))
end
tell_saved(KEYS[8], ARGV[1], ARGV[9])
if ARGV[10] == '1' then
  redis.call('HSET', KEYS[1], 'outage_over', string.format('%.0f', now))
end
local watched = tonumber(redis.call('HGET', KEYS[1], 'watched')) or 0
if ARGV[3] ~= '0' and now + ARGV[3] > watched then
  watched = now + ARGV[3]
  redis.call('HSET', KEYS[1], 'watched', string.format('%.0f', watched))
end
local held = redis.pcall('GET', KEYS[7])
local master, master_term = string.match(type(held) == 'string' and held or '', '^(%S+) (%d+)$')
if master then
  local its_end = redis.call('ZSCORE', KEYS[2], master)
  if not its_end or (tonumber(its_end) <= now and sure) or (master == ARGV[1] and ARGV[8] == 'yield') then
    redis.call('DEL', KEYS[7])
    master = nil
  end
end
if not master and ARGV[8] == 'take' then
  master, master_term = ARGV[1], redis.call('HINCRBY', KEYS[1], 'master_term', 1)
  redis.call('SET', KEYS[7], master .. ' ' .. master_term)
end
local bound = string.format('%.0f', now)
return {
  seal,
  clock,
  shift,
  redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. bound, '+inf'),
  redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', bound),
  tonumber(term),
  watched > now and 1 or 0,
  master or '',
  master and tonumber(master_term) or 0,
  redis.call('HGETALL', KEYS[8]),
  redis.call('HGET', KEYS[1], 'outage_over') or '',
}
