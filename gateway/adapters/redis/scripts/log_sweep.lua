#!lua flags=allow-oom
-- Cut what is too old of one topic's history, or drop all of it.
--
-- KEYS[1] values  hash    topic -> what is current
-- KEYS[2] logs    hash    what logs have appended; logs.lua
-- KEYS[3] marks   hash    what they keep; logs.lua
-- KEYS[4] log     stream  of the topic; logs.lua
-- ARGV[1] topic
-- ARGV[2] milliseconds for which an event is kept; 0 if the topic has no history any more
-- ARGV[3] most entries to look at in this step
-- Result  {entries that were cut, 1 if there may be more}
--
-- Invariant: only the oldest are cut, and readers can tell. Of a topic that is no more nothing stays but, for all of them
-- together, the id of the newest event that was dropped so.
-- A log from which all was cut stays, empty: nodes do not tell of each event that there is one.
-- Needs clock.lua and logs.lua. It frees memory, so that it runs also where there is none left.
local all = {logs = KEYS[2], marks = KEYS[3]}
local life, tool = tonumber(ARGV[2]), tools()
local newest = redis.call('XREVRANGE', KEYS[4], '+', '-', 'COUNT', 1)[1]
local gone = redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0
if gone or life == 0 then
  local held = redis.call('XLEN', KEYS[4])
  tool.drop_log(all, ARGV[1], KEYS[4], gone and newest and newest[1])
  return {held, 0}
end
local entries = redis.call('XRANGE', KEYS[4], '-', '+', 'COUNT', ARGV[3])
local old = 0
while old < #entries and tonumber(string.match(entries[old + 1][2][1], '^%d+')) < now - life do
  old = old + 1
end
if old == 0 then
  return {0, 0}
end
tool.cut(KEYS[4], entries[old][1])
local generation, sequence = string.match(entries[old][1], '^(%d+)-(%d+)$')
generation, sequence = tonumber(generation), tonumber(sequence)
local found = redis.call('HMGET', KEYS[3], ARGV[1], '')
local marks = found[1] or ''
local events, bytes, start = tool.read_marks(marks)
local first, left = start, bytes
while true do
  local id, mark_events, mark_bytes, following = tool.read_mark(marks, first)
  local other, number = string.match(id or '', '^(%d+)-(%d+)$')
  other, number = tonumber(other), tonumber(number)
  if not id or other > generation or (other == generation and number > sequence) then
    break
  end
  events, left, first = events - mark_events, left - mark_bytes, following
end
if first > start then
  tool.write_marks(all, ARGV[1], events, left, string.sub(marks, first), found[2], left - bytes)
end
return {old, old == #entries and 1 or 0}
