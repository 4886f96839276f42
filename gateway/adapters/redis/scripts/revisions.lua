-- Precedes every step that reads a table from the beginning that all nodes hold (revocations, destinations), or writes
-- to one.
--
-- KEYS[1] grid  hash  a field with the revision of the table
-- The last key is the stream of the table's changes: "<revision>-0" -> [name, what is held, '' for no more]
--
-- What another program appended stands behind all that the gateway has told. It would keep out every later change, and
-- a reader may have taken it for one. So it is deleted, and as many revisions are left out as it may have been taken
-- for, and one more: each reader meets a hole, and reads everything again.
--
-- Invariant: after sweep(field), the stream ends at the newest revision, or before.
-- Needs foreign_ids.lua.
local function sweep(field)
  local changes = KEYS[#KEYS]
  local deleted = 0
  local kind = redis.pcall('XLEN', changes)
  if type(kind) == 'table' then
    redis.call('DEL', changes)
    deleted = 1
  end
  local revision = tonumber(redis.call('HGET', KEYS[1], field) or 0)
  if not revision then
    -- Broken: what the stream says, if that can be. Ids that Redis makes up are times, which are above 2^40.
    local newest = redis.call('XREVRANGE', changes, 1099511627776, '-', 'COUNT', 1)[1]
    revision = newest and tonumber(string.match(newest[1], '^%d+')) or 0
    deleted = deleted + 1
  end
  deleted = deleted + delete_from(changes, string.format('(%.0f-0', revision))
  if deleted > 0 then
    go_on_behind(changes, last_of(changes))
    revision = revision + deleted + 1
    redis.call('HSET', KEYS[1], field, string.format('%.0f', revision))
  end
  return revision, deleted
end

-- Tell of a change, after sweep(field): what is held of a name from now on, '' for no more.
local function tell(field, name, held, kept)
  local revision = redis.call('HINCRBY', KEYS[1], field, 1)
  redis.call('XADD', KEYS[#KEYS], 'MAXLEN', '~', kept, string.format('%.0f-0', revision), name, held)
end
