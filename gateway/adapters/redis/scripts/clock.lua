-- Precedes every step that depends on the time of the grid, which is `now` from here on, in milliseconds.
--
-- ARGV[1] "<shift> <estimate> <tolerance>" (ms): by how much the caller takes the clock of Redis to be ahead, what it
--         takes the time of the grid to be, '-' for nothing, and how far both may differ; taken out of ARGV
--
-- Invariant: now goes on evenly, also if somebody has set the clock of Redis and nobody has recorded it yet.
local now, clock
do
  local shift, estimate, tolerance = string.match(table.remove(ARGV, 1), '^(%S+) (%S+) (%S+)$')
  local time = redis.call('TIME')
  clock = time[1] * 1000 + math.floor(time[2] / 1000)
  now = clock - shift
  if estimate ~= '-' and math.abs(now - estimate) > tonumber(tolerance) then
    now = tonumber(estimate)
  end
end
