-- Precedes every step that writes a session's list of selections.
--
-- Each entry is a field of the session's hash, 's:<selector>' -> '<sign><rank>', so that one of them changes alone. Ranks
-- grow along the list; the field 'rank' has the highest one that was given. A node of the first release wrote the field
-- 'selections', a JSON array of all entries: where it is, it is the whole list, whatever the other fields say.
--
-- Invariant: no two entries have the same rank, and an entry that is put has the highest one.

-- Put the entries from ARGV[first] to ARGV[last] at the end of the list.
local function put_entries(key, entries, first, last)
  local rank = tonumber(redis.call('HGET', key, 'rank') or 0)
  local fields = {}
  for at = first, last do
    rank = rank + 1
    fields[#fields + 1] = 's:' .. string.sub(entries[at], 2)
    fields[#fields + 1] = string.sub(entries[at], 1, 1) .. string.format('%.0f', rank)
    -- Lua passes a few thousand arguments at most.
    if #fields >= 1000 then
      redis.call('HSET', key, unpack(fields))
      fields = {}
    end
  end
  fields[#fields + 1] = 'rank'
  fields[#fields + 1] = string.format('%.0f', rank)
  redis.call('HSET', key, unpack(fields))
end

-- Take all entries out of the list.
local function drop_entries(key)
  for _, field in ipairs(redis.call('HKEYS', key)) do
    if string.sub(field, 1, 2) == 's:' then
      redis.call('HDEL', key, field)
    end
  end
  redis.call('HDEL', key, 'selections', 'rank')
end

-- Turn the list of an older node into entries; it costs nothing if there is none.
local function convert_entries(key)
  local written = redis.call('HGET', key, 'selections')
  if written then
    local entries = cjson.decode(written)
    drop_entries(key)
    put_entries(key, entries, 1, #entries)
  end
end
