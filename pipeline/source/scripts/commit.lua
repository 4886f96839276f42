-- Note up to where a stream of the journal is committed, and trim what no reader needs any more.
--
-- KEYS  1 the stream  2 its state (hash)
-- ARGV  1 incarnation of the stream that was read   2 the reader's name
--       3 id of the last committed entry            4 oldest id to keep, or "" to trim nothing
-- returns  entries trimmed; -1 if the stream is another one by now, -2 if another reader has claimed it, and then nothing
--          is changed
--
-- Invariant: nothing is trimmed that is not committed by the reader that has the stream, and a stream that was emptied is
-- not told of its predecessor.
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
return redis.call("XTRIM", KEYS[1], "MINID", "~", ARGV[4])
