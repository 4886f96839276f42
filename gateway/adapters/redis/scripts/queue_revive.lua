#!lua flags=allow-oom
-- Put dead letters back to their places in the queue, or drop them.
--
-- KEYS[1] to KEYS[12]  queue.lua
-- ARGV[1..3] queue.lua
-- ARGV[4] '1' to drop them
-- ARGV[5..] ids
-- Result  how many there were; 'stale': the caller must adopt the grid again
--
-- Invariant: a message is in one place only (P15). One that is put back has never failed, and does not expire any more.
if not open() then
  return 'stale'
end
local count = 0
for at = 5, #ARGV do
  local id = ARGV[at]
  if redis.call('ZREM', DEAD, id) == 1 then
    count = count + 1
    local size = size_of(id)
    meta[2] = meta[2] - size
    drop_timer('d' .. id)
    if ARGV[4] == '1' then
      forget(id)
    else
      meta[1] = meta[1] + size
      redis.call('HSET', NOTES, id, '0 !')
      redis.call('ZADD', READY, id, id)
    end
  end
end
fire()
assign({})
close()
return count
