-- Precedes every step that depends on the time of the grid, which is `now` from here on, in milliseconds.
--
-- ARGV[1] "<shift> <estimate> <tolerance> <sure>" (ms): by how much the caller takes the clock of Redis to be ahead, what
--         it takes the time of the grid to be, '-' for nothing, how far both may differ, and 0 if the caller has just
--         come and cannot tell yet whether the clock was set before, else 1; taken out of ARGV
--
-- Also `sure`: whoever is not ends nothing of others by the time.
--
-- Invariant: now goes on evenly, also if somebody has set the clock of Redis and nobody has recorded it yet.
local now, clock, sure
do
  local shift, estimate, tolerance, told = string.match(table.remove(ARGV, 1), '^(%S+) (%S+) (%S+) ?(%S*)$')
  sure = told ~= '0'
  local time = redis.call('TIME')
  clock = time[1] * 1000 + math.floor(time[2] / 1000)
  now = clock - shift
  if estimate ~= '-' and math.abs(now - estimate) > tonumber(tolerance) then
    now = tonumber(estimate)
  end
end
