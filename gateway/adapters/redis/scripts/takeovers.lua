-- Precedes the steps of a takeover. Needs clock.lua.
--
-- takeovers  hash  expired node -> "<end of the right (ms)> <who has it> [<stage> <step> <sessions> <generation>]". A node
--                  that was taken over, and has something that is to be cleaned up, has "-" for who; until the end of
--                  that nobody has the right.
--
-- Invariant: the right ends with its time, and before that with the lease of who has it.

-- Reads who has the right to a takeover, and how far that has come.
local function right_to(takeovers, expired)
  local last, by, progress = string.match(redis.call('HGET', takeovers, expired) or '', '^(%d+) (%S+) ?(.*)$')
  return {last = tonumber(last), by = by, progress = progress or ''}
end

-- Tells whether a right that somebody has holds still.
local function holds(right, leases)
  if right.last <= now then
    return false
  end
  local lease = right.by ~= '-' and redis.call('ZSCORE', leases, right.by)
  return right.by == '-' or (lease and tonumber(lease) > now) or false
end

local function give(takeovers, expired, by, within, progress)
  redis.call('HSET', takeovers, expired, string.format('%.0f', now + within) .. ' ' .. by .. ' ' .. progress)
end
