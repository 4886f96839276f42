#!lua flags=allow-oom
-- Open a generation in one topic partition: append a marker, an entry with an empty topic, as its entry number 0.
--
-- KEYS[1] stream  stream of the topic partition
-- ARGV[1] generation that the caller has adopted
-- ARGV[2] entries to keep, about
-- ARGV[3] '1' if it was opened in every partition before
-- Result  the generation that is open now; if it is newer than the caller's, the caller must adopt again; -1 if it was
--         opened before and is not now: the partition has lost writes that other parts of the grid still have
--
-- What is there in the place of a stream cannot have come from the gateway; it is deleted, and was a loss.
-- What another program appended would keep out every publish, so it is deleted.
-- Needs foreign_ids.lua.
--
-- Invariant: no publish precedes the marker of its generation. So a publish with an older generation is refused by the
-- stream itself, a reader meets every change of generation, and a stream that begins without marker was emptied.
if type(redis.pcall('XLEN', KEYS[1])) == 'table' then
  redis.call('DEL', KEYS[1])
end
local deleted = delete_from(KEYS[1], LARGEST_GENERATION + 1)
local last = last_of(KEYS[1])
if deleted > 0 then
  go_on_behind(KEYS[1], last)
end
local generation = tonumber(ARGV[1])
local newest = last and tonumber(string.match(last[1], '^%d+')) or -1
if newest < generation then
  if ARGV[3] == '1' then
    return -1
  end
  redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[2], ARGV[1] .. '-*', '', '')
end
return math.max(newest, generation)
