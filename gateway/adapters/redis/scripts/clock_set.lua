#!lua flags=allow-oom
-- Record that the clock of Redis was set, unless another node was first or knows better.
--
-- KEYS[1] grid    hash  shift: milliseconds by which the clock of Redis is ahead of the time of the grid
-- KEYS[2] clocks  hash  node -> "<what the clock said when it last fitted> <shift by which it did>" (ms)
-- ARGV[1] node
-- ARGV[2] shift that the caller has read
-- ARGV[3] shift that it takes for right
-- ARGV[4] what the clock said when the caller last found that it fitted (ms)
-- ARGV[5] what it would say now if it had not been set (ms)
-- ARGV[6] what it said when it did not fit (ms)
-- ARGV[7] how far both may differ (ms)
-- Result  {shift in force, 1 if it was recorded now, 0 if another node was first, -1 if another node knows better}
--
-- Invariant: one setting is recorded once. Another node knows better if it has found, by the shift in force, that the
-- clock fits at a time that the caller has not seen yet: then it was the caller's own clock that stood still.
local shift = tonumber(redis.call('HGET', KEYS[1], 'shift')) or 0
if shift ~= tonumber(ARGV[2]) then
  return {shift, 0}
end
local last, expected, read = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local clocks = redis.call('HGETALL', KEYS[2])
for index = 1, #clocks, 2 do
  local said, by = string.match(clocks[index + 1], '^(%S+) (%S+)$')
  said = tonumber(said)
  if said and clocks[index] ~= ARGV[1] and tonumber(by) == shift then
    local forward = read > expected and said > expected + ARGV[7]
    local backward = read < expected and said > last and said <= read
    if forward or backward then
      return {shift, -1}
    end
  end
end
redis.call('HSET', KEYS[1], 'shift', ARGV[3])
redis.call('HSET', KEYS[2], ARGV[1], ARGV[6] .. ' ' .. ARGV[3])
return {tonumber(ARGV[3]), 1}
