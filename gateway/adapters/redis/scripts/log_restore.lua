-- Put events back that the history of a topic had before the grid lost writes.
--
-- KEYS[1] stream  stream  of the partition: tells the generation
-- KEYS[2] logs    hash    what logs have appended; logs.lua
-- KEYS[3] marks   hash    what they keep; logs.lua
-- KEYS[4] log     stream  of the topic; logs.lua
-- ARGV[1] generation that the caller has adopted
-- ARGV[2] topic
-- ARGV[3] events that follow, and of each of these: its id, its version, its value
-- Behind them: what logs.lua says, of this one topic.
-- Result  how many were written, or 'stale' if the grid is of another generation
--
-- Invariant: a log grows at its end alone. So what is older than its newest event is not written, and what would leave a
-- hole behind that is written as what follows a hole (L3). Versions of a topic rise by one within a generation.
-- Needs logs.lua.
local newest = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
if newest and tonumber(string.match(newest[1], '^%d+')) > tonumber(ARGV[1]) then
  return 'stale'
end
local function place(id)
  local generation, sequence = string.match(id, '^(%d+)-(%d+)$')
  return tonumber(generation), tonumber(sequence)
end
local behind = 4 + 3 * ARGV[3]
local logs = read_logs(2, behind)
local last = redis.call('XREVRANGE', KEYS[4], '+', '-', 'COUNT', 1)[1]
local id, version = last and last[1] or '0-0', last and string.match(last[2][2], '^%d+')
local generation, sequence = place(id)
local written = 0
for at = 4, behind - 1, 3 do
  local other, number = place(ARGV[at])
  if other > generation or (other == generation and number > sequence) then
    if written == 0 and not begin_log(logs, ARGV[2], 1, id) then
      break
    end
    -- Each is an entry of its own, as each may follow a hole.
    local before = id
    if not version or tonumber(version) + 1 ~= tonumber(ARGV[at + 1]) then
      before = other .. '-' .. string.format('%.0f', number - 1)
    end
    write_log(logs, 1, before, ARGV[at], ARGV[at + 1] .. ' ' .. ARGV[at + 2])
    id, version, generation, sequence = ARGV[at], ARGV[at + 1], other, number
    written = written + 1
  end
end
return written
