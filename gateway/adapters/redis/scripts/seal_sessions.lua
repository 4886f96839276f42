#!lua flags=allow-oom
-- Open a generation in one session partition: what seal does for a topic partition.
--
-- KEYS[1] opened  string  seal of the newest generation that was opened here
-- ARGV[1] seal of the generation that the caller has adopted
-- ARGV[2] '1' if it was opened in every partition before
-- Result  as of seal
--
-- Invariant: a partition that comes back empty or from an older state, while the process that serves it is known, is
-- noticed by whoever adopts the grid next, and by every step that misses a session there.
local generation = math.floor(tonumber(ARGV[1]))
local seal = redis.call('GET', KEYS[1])
local newest = seal and math.floor(tonumber(seal)) or -1
if newest < generation or (newest == generation and seal ~= ARGV[1]) then
  if ARGV[2] == '1' then
    return -1
  end
  redis.call('SET', KEYS[1], ARGV[1])
end
return math.max(newest, generation)
