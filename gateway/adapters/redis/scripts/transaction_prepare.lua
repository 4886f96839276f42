#!lua
-- Prepare the part of a transaction in one topic partition, where partitions are on several Redis.
--
-- KEYS[1] prepared  hash  of the partition: "<session> <number>" -> "<turn> <when (ms)>", and "\n<queue>" for each of its queues
-- KEYS[2..], ARGV[1..12]  transaction_parts.lua
-- ARGV[13..] the part, and behind it what logs.lua asks for at the end
-- Result  'ok'; 'not_held', 'queue_full', 'absent', 'topics' or 'bytes': why it cannot be; 'overtaken': by a later turn;
--         'stale', 'emptied' as of topic_publish.lua
--
-- Invariant: what is prepared stays so until transaction_finish.lua is called with its turn or a later one. By an older
-- turn that arrives late something may be prepared again that is over: nothing decides by that turn, and who looks after
-- the partition undoes it.
local field, turn = ARGV[4] .. ' ' .. ARGV[8], tonumber(ARGV[9])
local note = redis.call('HGET', KEYS[1], field)
if note and tonumber(string.match(note, '^%d+')) > turn then
  return 'overtaken'
end
local part = read_part(2, 13)
if not note or tonumber(string.match(note, '^%d+')) < turn then
  local why = note and undo_part(part) or prepare_part(part)
  if why then
    return why
  end
end
local written = {ARGV[9] .. ' ' .. text(now)}
for _, each in ipairs(part.queues) do
  written[#written + 1] = each.name
end
redis.call('HSET', KEYS[1], field, table.concat(written, '\n'))
return 'ok'
