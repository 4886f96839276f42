-- What a topic partition holds, in bytes. This precedes the scripts that write topics.
--
-- values  hash  '' -> "<version>.0<bytes of all values, 15 digits>": beside the topics, so that reading and writing it
--               costs a publish no command. To Lua it is a number: scripts of older nodes, which do not look for the
--               bytes here, read the version that versions of new topics must be above; where they write it, the bytes
--               are gone
-- sizes   hash  block: bytes appended to the stream since the last mark, told by the nodes now and then; marks:
--               "<id> <bytes>;" of each block of the stream that is complete, the oldest first; values: bytes of all
--               values when they were last counted or a block was completed
--
-- Bytes are those of topics and values, and a share for what Redis and the gateway keep with each of them: measured, and
-- the same in the memory grid (gateway/ports/topics.py).
--
-- Invariant: the bytes of values are exact as long as only these scripts write. Where they are missing (an older node
-- made the grid, or wrote the version) the next step that changes the size of a value counts anew; likewise where
-- somebody deleted sizes, as soon as a block is complete or a value would be refused. A stream holds at most its bound,
-- a block, what the nodes have not told yet, and a node of Redis' own; nothing is read of it to keep it so.
local VALUE_BYTES = 128
local ENTRY_BYTES = 64
-- From here on numbers of Lua are not exact; the same number as in foreign.py.
local LARGEST_VERSION = 2 ^ 53

-- Returns the version of what a hash has for a topic, nil if another program put it there, and the bytes of its value;
-- what cannot be read counts as a whole.
local function read_value(stored)
  local version, start = string.match(stored, '^(%d+) %S+ ()')
  version = tonumber(version or string.match(stored, '^%d+'))
  if version and version >= LARGEST_VERSION then
    version = 0
  end
  return version, #stored - (start or 1) + 1
end

-- Returns what a hash has for the empty topic: the version, as text with what precedes the bytes of values, and these, nil
-- if they are missing.
local function read_floor(stored)
  local total = stored and #stored >= 18 and string.sub(stored, -17, -16) == '.0' and tonumber(string.sub(stored, -15))
  if total then
    return string.sub(stored, 1, -16), total
  end
  local floor = stored and string.match(stored, '^%d+')
  return (floor and tonumber(floor) < LARGEST_VERSION and floor or '0') .. '.0', nil
end

local function write_floor(floor, total)
  return floor .. string.format('%015d', total > 0 and total or 0)
end

-- Counts the bytes of values. Returns them, or nil and the error by which Redis refuses to write: then nothing was done.
local function count_values(sizes, values)
  -- What comes next is work, which nobody must be able to ask for again and again while Redis is full.
  local begun = redis.pcall('HSET', sizes, 'values', '0')
  if type(begun) == 'table' then
    return nil, begun
  end
  local total, cursor = 0, '0'
  repeat
    local found
    cursor, found = unpack(redis.call('HSCAN', values, cursor, 'COUNT', 1000))
    for at = 1, #found, 2 do
      if found[at] ~= '' then
        local _, bytes = read_value(found[at + 1])
        total = total + #found[at] + bytes + VALUE_BYTES
      end
    end
  until cursor == '0'
  redis.call('HSET', sizes, 'values', string.format('%.0f', total))
  return total
end

-- Counts bytes that were appended to a stream; most is its bound, 0 for none. When they are a sixteenth of it, the entry
-- id ends a block, and the oldest ones are trimmed as far as the rest holds more than it may. Without an id nothing was
-- appended now, and the block goes on; so it does where Redis refuses to write, as then nothing is appended either.
-- The hash of values has what was published now already.
local function count_entries(sizes, stream, values, id, bytes, most)
  if most == 0 then
    return
  end
  local block = redis.pcall('HINCRBY', sizes, 'block', bytes)
  if type(block) == 'table' or not id or block * 16 < most then
    return
  end
  local stored = redis.call('HMGET', sizes, 'marks', 'values')
  local marks, held = {}, block
  for mark, size in string.gmatch(stored[1] or '', '(%S+) (%d+);') do
    marks[#marks + 1] = {mark, tonumber(size)}
    held = held + size
  end
  marks[#marks + 1] = {id, block}
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
  local floor, known = read_floor(redis.call('HGET', values, ''))
  redis.call('HSET', sizes, 'marks', table.concat(kept), 'block', '0')
  if stored[2] and known then
    redis.call('HSET', sizes, 'values', string.format('%.0f', known))
  elseif known then
    -- Somebody deleted sizes, to have the values counted anew.
    redis.call('HSET', values, '', string.match(floor, '^%d+'))
  end
end
