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
local function sweep()
  local PAGE = 1000
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
  local behind = string.format('(%.0f-0', revision)
  while true do
    local foreign = {}
    for _, entry in ipairs(redis.call('XREVRANGE', KEYS[4], '+', behind, 'COUNT', PAGE)) do
      foreign[#foreign + 1] = entry[1]
    end
    if #foreign == 0 then
      break
    end
    redis.call('XDEL', KEYS[4], unpack(foreign))
    deleted = deleted + #foreign
  end
  if deleted > 0 then
    local last = redis.call('XREVRANGE', KEYS[4], '+', '-', 'COUNT', 1)[1]
    if last then
      redis.call('XSETID', KEYS[4], last[1])
    else
      redis.call('DEL', KEYS[4])
    end
    revision = revision + deleted + 1
    redis.call('HSET', KEYS[1], 'revision', string.format('%.0f', revision))
  end
  return revision, deleted
end
