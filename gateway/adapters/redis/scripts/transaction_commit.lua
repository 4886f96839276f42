#!lua
-- Commit a transaction in one step, where one Redis holds all keys.
--
-- KEYS[1] to KEYS[6], ARGV[1..8]  transactions.lua
-- KEYS[7..], ARGV[9..12]          transaction_parts.lua
-- ARGV[13] how many parts
-- ARGV[14..] the parts, and behind them what logs.lua asks for at the end
-- Result  'ok'; 'not_held', 'queue_full', 'absent', 'topics' or 'bytes': why not, and it was rolled back; 'overtaken': somebody else has
--         taken it, or it is over; 'stale', 'emptied' as of topic_publish.lua: nothing was done
--
-- Invariant: all of it or nothing (P16). Redis refuses it as a whole at the memory limit.
local record = read_record()
if not record or record.state ~= 'p' or record.turn ~= tonumber(ARGV[9]) then
  return 'overtaken'
end
local parts, key, at = {}, 7, 14
for number = 1, tonumber(ARGV[13]) do
  parts[number], key, at = read_part(key, at)
end
local why, prepared = nil, 0
while not why and prepared < #parts do
  why = prepare_part(parts[prepared + 1])
  prepared = prepared + (why and 0 or 1)
end
if why then
  for number = 1, prepared do
    undo_part(parts[number])
  end
  if why == 'stale' or why == 'emptied' then
    return why
  end
else
  for _, part in ipairs(parts) do
    execute_part(part)
  end
end
end_record(record, why or '-')
return why or 'ok'
