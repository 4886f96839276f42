-- Precedes every step that writes destinations.
--
-- KEYS[1] grid     hash    destination_revision
-- KEYS[2] held     hash    name -> "<made> <what it is (JSON)>"
-- KEYS[3] changes  stream  "<revision>-0" -> [name, what is held, '' for no more]
--
-- Invariant: what is held and the changes go together, and revisions have no hole, so a reader that meets one has
-- missed something. What says the same as before is no change, whenever it was made.
-- Needs revisions.lua.
local function said(held)
  return held and string.match(held, '^%S+ (.*)$') or held
end

local function made(held)
  return tonumber(string.match(held, '^%S+')) or 0
end

-- Hold a destination; tells whether that is a change.
local function hold(name, value, kept)
  if said(redis.call('HGET', KEYS[2], name)) == said(value) then
    return 0
  end
  redis.call('HSET', KEYS[2], name, value)
  tell('destination_revision', name, value, kept)
  return 1
end

-- Hold it no more; tells whether that is a change.
local function drop(name, kept)
  if redis.call('HDEL', KEYS[2], name) == 0 then
    return 0
  end
  tell('destination_revision', name, '', kept)
  return 1
end
