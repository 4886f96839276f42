-- Precedes the steps by which a node tells what it has saved.
--
-- saved  hash  node -> up to when all that happened to its sessions is in the grid (ms)
--
-- Invariant: it never goes back, also if an older word arrives late.

-- Takes in a node's word; '' for none.
local function tell_saved(saved, node, until_)
  if until_ ~= '' and tonumber(until_) > (tonumber(redis.call('HGET', saved, node) or '') or -1) then
    redis.call('HSET', saved, node, until_)
  end
end
