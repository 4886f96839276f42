-- What a topic partition holds, in bytes. This precedes the scripts that write topics.
--
-- sizes  hash  values: bytes of all values of the partition; block: bytes appended to its stream since the last mark;
--              marks: "<id> <bytes>;" of each block of the stream that is complete, the oldest first
--
-- Bytes are those of topics and values, and a share for what Redis and the gateway keep with each of them: measured, and
-- the same in the memory grid (gateway/ports/topics.py).
--
-- Invariant: values is exact as long as only these scripts write. Where it is missing (an older
-- node made the grid, or somebody deleted it) the next step that writes a value counts anew. A stream holds at most its bound, a block,
-- an entry and a node of Redis' own; nothing is read of it to keep it so.
local VALUE_BYTES = 128
local ENTRY_BYTES = 64
local BLOCKS = 16
local PAGE = 1000
-- From here on numbers of Lua are not exact; the same number as in foreign.py.
local LARGEST_VERSION = 2 ^ 53

-- Returns the bytes of the value in what a hash has for a topic; what cannot be read counts as a whole.
local function value_bytes(stored)
  local start = string.match(stored, '^%d+ %S+ ()')
  return #stored - (start or 1) + 1
end

-- Returns the version of what a hash has for a topic as a number, 0 of what another program put there.
local function version_of(text)
  local version = tonumber(text or '0')
  return version < LARGEST_VERSION and version or 0
end

local function counted(values)
  local total, cursor = 0, '0'
  repeat
    local found
    cursor, found = unpack(redis.call('HSCAN', values, cursor, 'COUNT', PAGE))
    for at = 1, #found, 2 do
      if found[at] ~= '' then
        total = total + #found[at] + value_bytes(found[at + 1]) + VALUE_BYTES
      end
    end
  until cursor == '0'
  return total
end

-- Returns what a partition holds, or nil and the error by which Redis refuses to write: then nothing was done.
local function read_sizes(key, values)
  local stored = redis.call('HMGET', key, 'values', 'block')
  local total, block = tonumber(stored[1]), tonumber(stored[2]) or 0
  if not total then
    -- What comes next is work, which nobody must be able to ask for again and again while Redis is full.
    local begun = redis.pcall('HSET', key, 'block', string.format('%.0f', block))
    if type(begun) == 'table' then
      return nil, begun
    end
    total = counted(values)
  end
  return {key = key, total = total, block = block}
end

local function write_sizes(sizes)
  redis.call(
    'HSET', sizes.key, 'values', string.format('%.0f', math.max(sizes.total, 0)), 'block',
    string.format('%.0f', sizes.block)
  )
end

-- Ends a block of the stream, and trims the oldest ones as far as the rest holds more than it may.
local function end_block(sizes, stream, id, most)
  local marks, held = {}, sizes.block
  for mark, bytes in string.gmatch(redis.call('HGET', sizes.key, 'marks') or '', '(%S+) (%d+);') do
    marks[#marks + 1] = {mark, tonumber(bytes)}
    held = held + bytes
  end
  marks[#marks + 1] = {id, sizes.block}
  sizes.block = 0
  local first = 1
  while held > most and first < #marks do
    held = held - marks[first][2]
    first = first + 1
  end
  if first > 1 then
    local generation, sequence = string.match(marks[first - 1][1], '^(%d+)-(%d+)$')
    redis.call('XTRIM', stream, 'MINID', '~', generation .. '-' .. string.format('%.0f', sequence + 1))
  end
  local kept = {}
  for number = first, #marks do
    kept[#kept + 1] = marks[number][1] .. ' ' .. string.format('%.0f', marks[number][2]) .. ';'
  end
  redis.call('HSET', sizes.key, 'marks', table.concat(kept))
end

-- Counts an entry of the stream that was just appended; most is the bound of the stream, 0 for none.
local function count_entry(sizes, stream, id, topic, value, most)
  sizes.block = sizes.block + #topic + #value + ENTRY_BYTES
  if most == 0 then
    sizes.block = 0
  elseif sizes.block * BLOCKS >= most then
    end_block(sizes, stream, id, most)
  end
end
