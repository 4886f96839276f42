-- Precedes the steps of questions and of queues, which tell what they have done in a stream of the partition. Needs clock.lua and
-- foreign_ids.lua.
--
-- A follower reads behind an entry, and takes the one with the next number for what came next. Where numbers begin anew (in
-- a generation, or because another program has deleted or replaced the stream) the first is the time of the grid in µs:
-- above all that were given before, and next to none of them. So every follower meets it, as a hole.
-- What another program has put behind the gateway's own would keep that out. It is deleted, and numbers go on behind what
-- is left.
--
-- Invariant: whoever follows a stream is given each entry behind its place, or meets a hole.
local TOLD_SEQUENCES = '9007199254740992'  -- Lua counts up to here; no time is so far away

-- Makes a stream ready for what this generation tells; returns its last entry.
local function prepare_told(stream, generation)
  local last = redis.pcall('XREVRANGE', stream, '+', '-', 'COUNT', 1)
  if last.err then
    -- It is no stream; any other error comes again.
    if string.find(last.err, 'WRONGTYPE', 1, true) then
      redis.call('DEL', stream)
    end
    last = redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)
  end
  last = last[1]
  local newest, sequence = string.match(last and last[1] or '0-0', '^(%d+)-(%d+)$')
  if tonumber(newest) > tonumber(generation)
    or (newest == generation and tonumber(sequence) >= tonumber(TOLD_SEQUENCES)) then
    delete_from(stream, generation .. '-' .. TOLD_SEQUENCES)
    last = last_of(stream)
    go_on_behind(stream, last)
    newest = last and string.match(last[1], '^%d+') or '0'
  end
  if not last or tonumber(newest) < tonumber(generation) then
    redis.call('XADD', stream, generation .. '-' .. string.format('%.0f000', math.floor(now)), '', '')
    last = last_of(stream)
  end
  return last
end
