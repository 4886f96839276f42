-- Precedes every step that numbers the entries of a stream itself, where another program may have appended.
--
-- Redis makes up ids for whoever gives none: times in milliseconds, far beyond all numbers of the gateway. They would
-- keep out everything that the gateway appends after them.
local LARGEST_GENERATION = 1048576

-- Deletes all entries of a stream from `first` on, an id as XREVRANGE takes it; returns how many.
local function delete_from(stream, first)
  local PAGE = 1000
  local deleted = 0
  while true do
    local foreign = {}
    for _, entry in ipairs(redis.call('XREVRANGE', stream, '+', first, 'COUNT', PAGE)) do
      foreign[#foreign + 1] = entry[1]
    end
    if #foreign == 0 then
      return deleted
    end
    redis.call('XDEL', stream, unpack(foreign))
    deleted = deleted + #foreign
  end
end

-- Returns the last entry of a stream, nil if it is empty.
local function last_of(stream)
  return redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)[1]
end

-- Lets numbering go on behind what is left of a stream; one of which nothing is left is deleted.
local function go_on_behind(stream, last)
  if last then
    redis.call('XSETID', stream, last[1])
  else
    redis.call('DEL', stream)
  end
end
