#!lua flags=allow-oom
-- Adopt the grid: decide which generation is in force for the Redis process that answers here.
--
-- KEYS[1] grid       hash    run_id, generation, term
-- KEYS[2] leases     zset    node -> end of its lease (ms, Redis clock)
-- KEYS[3] members    hash    node -> "<length of its lease in ms> <term>"
-- KEYS[4] renewed    string  when any node last took or renewed a lease (ms, Redis clock)
-- KEYS[5] takeovers  hash    lapsed node -> "<end of the right in ms> <who has it>"
-- ARGV[1] run_id of the answering process
-- ARGV[2] newest generation the caller has ever adopted; 0 if none
-- ARGV[3] run_id of the process that the caller adopted it from; '' if that is not to be compared
-- Result  the generation in force
--
-- Invariant: (run_id, generation) change together, and the generation never falls below one that any caller knows. A
-- process whose run_id is not the stored one may have lost writes (restart, promotion, lost data): next generation.
-- Also if the caller knows the stored generation from another process: two nodes that were cut off in turn may have seen
-- different processes come back from the same older state, and no number may stand for both.
-- An outage lapses nobody: whoever had a lease gets its full length again if the grid was another process, or if no
-- node at all renewed for more than half the length of its lease (healthy nodes renew every third of it). Only a node
-- that is being taken over stays lapsed: some of its sessions are on the clock already, so it must come back by join.
local known = tonumber(ARGV[2])
local stored = redis.call('HMGET', KEYS[1], 'run_id', 'generation', 'term')
local generation = tonumber(stored[2]) or 0
local changed = stored[1] ~= ARGV[1] or generation < known
  or (generation == known and ARGV[3] ~= '' and ARGV[3] ~= ARGV[1])
if changed then
  generation = math.max(generation, known) + 1
  -- Terms of leases rise over generations too, or a session that carries one of a lost grid could never be orphaned.
  local term = math.max(tonumber(stored[3]) or 0, generation * 1048576)
  redis.call(
    'HSET', KEYS[1], 'run_id', ARGV[1], 'generation', string.format('%.0f', generation),
    'term', string.format('%.0f', term)
  )
end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local silence = now - (tonumber(redis.call('GET', KEYS[4])) or now)
local members = redis.call('HGETALL', KEYS[3])
local extended = false
for i = 1, #members, 2 do
  local length = tonumber(string.match(members[i + 1], '^%d+'))
  local lapses = redis.call('HEXISTS', KEYS[5], members[i]) == 1
  if not lapses and (changed or silence > length / 2) then
    redis.call('ZADD', KEYS[2], 'XX', 'GT', now + length, members[i])
    extended = true
  end
end
if extended then
  redis.call('SET', KEYS[4], string.format('%.0f', now))
end
return generation
