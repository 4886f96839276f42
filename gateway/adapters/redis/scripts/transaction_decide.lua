#!lua flags=allow-oom
-- Decide what becomes of a transaction that is being prepared, or note that this has been done.
--
-- KEYS[1] to KEYS[6], ARGV[1..8]  transactions.lua
-- ARGV[9] turn of the caller
-- ARGV[10] 'c' to execute it, 'r' to roll it back, 'd' when this is done, 'o' to leave it open: nothing was prepared
-- ARGV[11] the outcome, with 'r'
-- Result  'ok', also if it was so before; 'overtaken': somebody else has taken it, or it is over
--
-- Invariant: it is decided once, by the last who took it, and the decision stays (P16). The session's owner need not be the
-- caller any more: what was asked for by an owner is brought to its end.
local record = read_record()
if not record or record.turn ~= tonumber(ARGV[9]) then
  return 'overtaken'
end
local wanted = ARGV[10]
if wanted == 'd' then
  if record.state == 'c' or record.state == 'r' then
    end_record(record, record.outcome)
    return 'ok'
  end
  return record.state == 'd' and 'ok' or 'overtaken'
elseif record.state == wanted then
  return 'ok'
elseif record.state ~= 'p' then
  return 'overtaken'
end
record.state, record.used = wanted, now
if wanted == 'r' then
  record.outcome = ARGV[11]
end
write_record(record)
return 'ok'
