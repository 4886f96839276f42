-- Precedes every step that reads the revocations from the beginning, or writes some.
--
-- KEYS[1] grid     hash    revision
-- KEYS[4] changes  stream  "<revision>-0" -> [name, what is held, '' for no more]
--
-- What another program appended stands behind all that the gateway has told. It would keep out every later change, and
-- a reader may have taken it for one. So it is deleted, and as many revisions are left out as it may have been taken
-- for, and one more: each reader meets a hole, and reads everything again.
--
-- Invariant: after sweep(), the stream ends at the newest revision, or before.
-- Needs foreign_ids.lua.
local function sweep()
  local deleted = 0
  local kind = redis.pcall('XLEN', KEYS[4])
  if type(kind) == 'table' then
    redis.call('DEL', KEYS[4])
    deleted = 1
  end
  local revision = tonumber(redis.call('HGET', KEYS[1], 'revision') or 0)
  if not revision then
    -- Broken: what the stream says, if that can be. Ids that Redis makes up are times, which are above 2^40.
    local newest = redis.call('XREVRANGE', KEYS[4], 1099511627776, '-', 'COUNT', 1)[1]
    revision = newest and tonumber(string.match(newest[1], '^%d+')) or 0
    deleted = deleted + 1
  end
  deleted = deleted + delete_from(KEYS[4], string.format('(%.0f-0', revision))
  if deleted > 0 then
    go_on_behind(KEYS[4], last_of(KEYS[4]))
    revision = revision + deleted + 1
    redis.call('HSET', KEYS[1], 'revision', string.format('%.0f', revision))
  end
  return revision, deleted
end
