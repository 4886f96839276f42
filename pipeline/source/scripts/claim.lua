-- Claim a stream of the journal for a reader, or see that it still has it.
--
-- KEYS  1 the stream's state (hash)
-- ARGV  1 the reader's name   2 "1" to take it from another reader, "0" to leave it to that one
-- returns  the name of the reader that has the stream now
--
-- Invariant: a stream has one reader. Nobody else becomes it unless his user says so.
local holder = redis.call("HGET", KEYS[1], "reader")
if holder and holder ~= "" and holder ~= ARGV[1] and ARGV[2] ~= "1" then
  return holder
end
if holder ~= ARGV[1] then
  redis.call("HSET", KEYS[1], "reader", ARGV[1])
end
return ARGV[1]
