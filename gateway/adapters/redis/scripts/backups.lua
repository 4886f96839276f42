-- What all steps share that change what is known of backups.
--
-- Invariant: an entry goes when nobody can ask for a copy any more, not when its node does. One with a lease has no end.
-- Needs clock.lua.

-- Forget what is known of backups of nodes that are gone for long enough, or that too many others followed.
local function tidy_backups(backups, leases, most)
  local entries = redis.pcall('HGETALL', backups)
  if entries.err then
    -- What is there in its place cannot have come from the gateway.
    redis.call('DEL', backups)
    return
  end
  local gone, kept = {}, false
  for at = 1, #entries, 2 do
    local node, entry = entries[at], entries[at + 1]
    local keep, ends, backup = string.match(entry, '^(%d+) (%d+) (.*)$')
    if not keep then
      redis.call('HDEL', backups, node)
    elseif redis.call('ZSCORE', leases, node) then
      kept = true
    else
      ends = tonumber(ends)
      if ends == 0 then
        ends = now + keep
        redis.call('HSET', backups, node, keep .. ' ' .. string.format('%.0f', ends) .. ' ' .. backup)
      end
      if ends > now then
        gone[#gone + 1] = {ends, node}
      else
        redis.call('HDEL', backups, node)
      end
    end
  end
  table.sort(gone, function(one, other) return one[1] > other[1] end)
  for at = tonumber(most) + 1, #gone do
    redis.call('HDEL', backups, gone[at][2])
  end
  if gone[1] and not kept then
    redis.call('PEXPIRE', backups, string.format('%.0f', gone[1][1] - now))
  end
end
