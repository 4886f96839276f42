-- Precedes every step that writes what is known of zones.
--
-- KEYS[1] grid  hash    generation, zone_revision
-- KEYS[2] held  hash    name of a record -> "<rank> <what it is (JSON)>"
-- KEYS[3] news  stream  "<revision>-0" -> [name, what is held, '' for no more]
--
-- Names begin with the kind of the record: "zone <uid>", "member <uid> <cluster>", "join <name>", and "membership".
--
-- Invariant: what is held and the news go together, and revisions have no hole, so a reader that meets one has missed
-- something. Never more of a kind than may be.
-- Needs revisions.lua.
local function kind_of(name)
  return string.match(name, '^%S+')
end

local function rank_of(held)
  return tonumber(string.match(held, '^%S+')) or 0
end

-- Counts the records of each kind.
local function count_kinds()
  local counts = {}
  for _, name in ipairs(redis.call('HKEYS', KEYS[2])) do
    local kind = kind_of(name) or ''
    counts[kind] = (counts[kind] or 0) + 1
  end
  return counts
end

-- Reads "zone:64,member:1000,…".
local function read_bounds(text)
  local bounds = {}
  for kind, most in string.gmatch(text, '(%a+):(%d+)') do
    bounds[kind] = tonumber(most)
  end
  return bounds
end

local function hold(name, value, kept)
  redis.call('HSET', KEYS[2], name, value)
  tell('zone_revision', name, value, kept)
end
