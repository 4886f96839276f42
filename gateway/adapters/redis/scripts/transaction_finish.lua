#!lua flags=allow-oom
-- Execute or undo the part of a transaction in one topic partition, which was prepared there.
--
-- KEYS[1] prepared  hash  as in transaction_prepare.lua
-- KEYS[2..], ARGV[1..12]  transaction_parts.lua
-- ARGV[13] 'c' to execute it, 'r' to undo it, 'f' likewise, of one of which nothing is known any more
-- ARGV[14..] the part, and behind it what logs.lua asks for at the end
-- Result  'ok', also if there is nothing to do; 'overtaken': a later turn has prepared it; 'stale', 'emptied' as of
--         topic_publish.lua: nothing was done
--
-- Invariant: what was prepared by this turn is executed once. What an older turn has prepared late is undone.
local field, turn = ARGV[4] .. ' ' .. ARGV[8], tonumber(ARGV[9])
local note = redis.call('HGET', KEYS[1], field)
local prepared = note and tonumber(string.match(note, '^%d+')) or 0
if prepared > turn then
  return 'overtaken'
end
local part = read_part(2, 14)
local why
if ARGV[13] == 'c' and prepared == turn then
  why = check_stream(part)
  for _, each in ipairs(part.queues) do
    why = why or (not enter(each) and 'stale' or nil)
  end
  if not why then
    execute_part(part)
  end
elseif note or ARGV[13] ~= 'c' then
  why = undo_part(part, ARGV[13] == 'f')
end
if why then
  return why
end
redis.call('HDEL', KEYS[1], field)
return 'ok'
