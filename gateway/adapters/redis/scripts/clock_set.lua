#!lua flags=allow-oom
-- Record that the clock of Redis was set, unless another node was first or knows better.
--
-- KEYS[1] grid    hash  shift: milliseconds by which the clock of Redis is ahead of the time of the grid, shift_by: the
--                       node that recorded it
-- KEYS[2] clocks  hash  node -> "<what the clock said when it last fitted> <shift by which it did> <what it said when
--                       the node began to follow it by that shift> <how long it had followed it by any>" (ms)
-- ARGV[1] node
-- ARGV[2] shift that the caller has read
-- ARGV[3] shift that it takes for right
-- ARGV[4] what the clock said, or by the shift that was read would have said, when the caller last found that it fitted
-- ARGV[5] what it would say now if it had not been set (ms)
-- ARGV[6] what it said when it did not fit (ms)
-- ARGV[7] how far both may differ (ms)
-- ARGV[8] how long the caller has followed it (ms)
-- ARGV[9] 1 if the clock itself has gone on evenly for the caller, and only the shift is not its own; else 0
-- Result  {shift in force, 1 if it was recorded now, 0 if another node was first, -1 if another node knows better}
--
-- Invariant: one setting is recorded once. Another node knows better if it has followed the clock, by the shift in
-- force, from before the caller's last look until after what the caller expected: then it was the caller's own clock
-- that stood still. Who came after the clock was set has not seen it, and contradicts nobody. Of nodes that have seen
-- no setting and disagree about the shift, the one is right that has followed the clock for longest.
local shift = tonumber(redis.call('HGET', KEYS[1], 'shift')) or 0
if shift ~= tonumber(ARGV[2]) then
  return {shift, 0}
end
local last, expected, read, tolerance = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local age, even = tonumber(ARGV[8]), ARGV[9] == '1'
local clocks = redis.call('HGETALL', KEYS[2])
for index = 1, #clocks, 2 do
  local said, by, since, followed = string.match(clocks[index + 1], '^(%S+) (%S+) ?(%S*) ?(%S*)$')
  said = tonumber(said)
  if said and clocks[index] ~= ARGV[1] and tonumber(by) == shift then
    -- A node of before does not tell these.
    since, followed = tonumber(since) or 0, tonumber(followed) or 0
    local better
    if even then
      better = said >= last and followed + read - said > age
    elseif read > expected then
      -- The clock went from somewhere behind `last` to somewhere behind `last + read - expected`; no value between
      -- these two places has been.
      better = said > expected + tolerance and since < last + read - expected - tolerance
    else
      better = said > last and said <= read and since <= last
    end
    if better then
      return {shift, -1}
    end
  end
end
redis.call('HSET', KEYS[1], 'shift', ARGV[3], 'shift_by', ARGV[1])
redis.call('HSET', KEYS[2], ARGV[1], table.concat({ARGV[6], ARGV[3], ARGV[6], ARGV[8]}, ' '))
return {tonumber(ARGV[3]), 1}
