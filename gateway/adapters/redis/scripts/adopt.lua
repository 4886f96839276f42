#!lua flags=allow-oom
-- Adopt the grid: decide which generation is in force for the Redis processes that answer.
--
-- KEYS[1] grid       hash    run_id, generation, seal, opened, term, shift, lost, outage_over
-- KEYS[2] leases     zset    node -> end of its lease (ms)
-- KEYS[3] members    hash    node -> "<length of its lease in ms> <term>"
-- KEYS[4] renewed    string  when any node last took or renewed a lease (ms)
-- KEYS[5] takeovers  hash    expired node -> "<end of the right in ms> <who has it>"
-- ARGV[1] names of the answering processes, one per master, separated by blanks; see adoption.py
-- ARGV[2] newest generation the caller has ever adopted; 0 if none
-- ARGV[3] seal of that generation; '' if it is not to be compared
-- ARGV[4] a random number, for a seal, should one have to be made
-- ARGV[5] '1' if the caller has read the clock of this grid before, else '0'
-- ARGV[6] by how much the generation grows if the caller has never adopted the stored one
-- ARGV[7] how far the time of the last renewal may be ahead of a time that is right (ms)
-- Result  {the generation in force, 1 if it is open in every partition already, else 0, its seal, what the clock of
--         Redis says (ms), shift: by how much that is ahead of the time of the grid (ms), how long ago the grid lost
--         writes, as far as it knows (ms); -1 if it never has, the time of the grid (ms), for how long nobody had
--         renewed a lease (ms)}
--
-- Needs clock.lua. A caller that has never read the clock goes by the shift that is stored here. If the last renewal was
-- later than that, somebody has set the clock back, and the time goes on from there: it never goes back.
--
-- Invariant: (run_id, generation) change together, and the generation never falls below one that any caller knows. A
-- process that is not among the stored ones may have lost writes (restart, promotion, lost data): next generation. One
-- that is missing has lost nothing: its hash tags were moved to the others while it lived, or else one of its replicas
-- would be among the processes now.
-- A process that was promoted is named "<run id>:<of which replication it was a replica>". It forgets the latter when it
-- has had no replica for an hour, and its name is the run id alone from then on. That is the same process: a further
-- promotion brings another replication. So the short name is stored beside the long one, which a node that has asked for
-- it a moment ago may still give. One that was stored by the run id alone and was promoted since may have lost writes.
-- A caller that has not adopted the stored generation cannot know which followed it before the grid went back to it: it
-- leaves room for them, as clients have seen versions of theirs (P6).
-- Also if the caller knows the stored generation by another seal: two nodes that were cut off in turn may have seen
-- different processes come back from the same older state, or each a grid that was emptied under it, and no number may
-- stand for both. A seal is "<generation>.<random>"; one of another generation was left by a node that knew no seals.
-- An outage expires no lease: whoever had a lease gets its full length again if the grid was another process, or if no
-- node at all renewed for more than half the length of its lease (healthy nodes renew every third of it). Only a node
-- that is being taken over stays expired: some of its sessions are on the clock already, so it must come back by join.
-- For the same reasons, or because the caller had a connection before and lost it, an outage is over now: what happened
-- to sessions before may be known to their nodes alone (P7).
local function all_among(names, known)
  local set, shorter = {}, {}
  for name in string.gmatch(known, '%S+') do
    set[name] = true
    shorter[string.match(name, '^(.*):') or ''] = true
  end
  local fresh = ''
  for name in string.gmatch(names, '%S+') do
    if not set[name] then
      if not shorter[name] then
        return false, ''
      end
      fresh = fresh .. ' ' .. name
    end
  end
  return true, fresh
end

local known = tonumber(ARGV[2])
local stored = redis.call('HMGET', KEYS[1], 'run_id', 'generation', 'term', 'opened', 'seal', 'shift', 'lost')
local generation = tonumber(stored[2]) or 0
local are_known, shorter = all_among(ARGV[1], stored[1] or '')
local changed = not stored[1] or not are_known or generation < known
  or (generation == known and ARGV[3] ~= '' and stored[5] ~= ARGV[3])
local broken = stored[3] and not tonumber(stored[3])  -- by another program, and no node could join
local lost = false
if changed or broken then
  changed = true
  lost = generation > 0 or known > 0
  generation = math.max(generation, known) + (known < generation and tonumber(ARGV[6]) or 1)
  -- Terms of leases rise over generations too, or a session that carries one of a lost grid could never be orphaned.
  local term = math.max(tonumber(stored[3]) or 0, generation * 1048576)
  redis.call(
    'HSET', KEYS[1], 'run_id', ARGV[1], 'generation', string.format('%.0f', generation),
    'term', string.format('%.0f', term)
  )
elseif shorter ~= '' then
  redis.call('HSET', KEYS[1], 'run_id', stored[1] .. shorter)
end

local seal, opened = stored[5], stored[4] == string.format('%.0f', generation)
if changed or not tonumber(seal or '') or math.floor(tonumber(seal)) ~= generation then
  seal, opened = string.format('%.0f.', generation) .. ARGV[4], false
  redis.call('HSET', KEYS[1], 'seal', seal)
end

local shift = tonumber(stored[6]) or 0
local renewed = tonumber(redis.call('GET', KEYS[4]))
if ARGV[5] == '0' then
  now = clock - shift
  if renewed and renewed - now > tonumber(ARGV[7]) then
    now = renewed
  end
end
local silence = now - (renewed or now)
local members = redis.call('HGETALL', KEYS[3])
local extended = false
for i = 1, #members, 2 do
  local length = tonumber(string.match(members[i + 1], '^%d+'))
  local expires = redis.call('HEXISTS', KEYS[5], members[i]) == 1
  if length and not expires and (changed or silence > length / 2) then
    redis.call('ZADD', KEYS[2], 'XX', 'GT', now + length, members[i])
    extended = true
  end
end
if extended then
  redis.call('SET', KEYS[4], string.format('%.0f', now))
end
if changed or extended or known > 0 then
  redis.call('HSET', KEYS[1], 'outage_over', string.format('%.0f', now))
end
local ago = -1
if lost then
  redis.call('HSET', KEYS[1], 'lost', string.format('%.0f', now))
  ago = 0
elseif tonumber(stored[7] or '') then
  ago = math.max(0, now - tonumber(stored[7]))
end
return {generation, opened and 1 or 0, seal, clock, shift, ago, now, silence}
