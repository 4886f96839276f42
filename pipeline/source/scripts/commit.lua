-- Note up to where a stream of the journal is committed, and trim what no reader needs any more.
--
-- KEYS  1 the stream  2 its state (hash)
-- ARGV  1 incarnation of the stream that was read   2 the reader's name
--       3 id of the last committed entry            4 oldest id to keep, or "" to trim nothing
-- returns  entries trimmed; -1 if the stream is another one by now, -2 if another reader has claimed it, and then nothing
--          is changed
--
-- Invariant: nothing is trimmed that is not committed by the reader that has the stream, or that an event hook has yet
-- to pass (fields "hook:<name>" of the state: "<term> <incarnation> <id>[.<events>] <events passed>"); and a stream that
-- was emptied is not told of its predecessor.
if redis.call("HGET", KEYS[2], "incarnation") ~= ARGV[1] then
  return -1
end
local holder = redis.call("HGET", KEYS[2], "reader")
if holder and holder ~= "" and holder ~= ARGV[2] then
  return -2
end
redis.call("HSET", KEYS[2], "committed", ARGV[3], "reader", ARGV[2])
if ARGV[4] == "" then
  return 0
end
local function parts(id)
  local generation, sequence = string.match(id, "^(%d+)-(%d+)")
  return tonumber(generation) or 0, tonumber(sequence) or 0
end
local oldest = ARGV[4]
local generation, sequence = parts(oldest)
local state = redis.call("HGETALL", KEYS[2])
for at = 1, #state, 2 do
  local of, place = string.match(state[at + 1], "^%d+ (%S+) (%d+%-%d+)")
  if place and string.find(state[at], "^hook:") then
    -- A cursor of another incarnation has all of this one before it.
    place = of == ARGV[1] and place or "0-0"
    local its_generation, its_sequence = parts(place)
    if its_generation < generation or (its_generation == generation and its_sequence < sequence) then
      oldest, generation, sequence = place, its_generation, its_sequence
    end
  end
end
return redis.call("XTRIM", KEYS[1], "MINID", "~", oldest)
