#!lua flags=allow-oom
-- Read what is behind the cursor of a hook in one stream of the journal.
--
-- KEYS[1] journal  stream  see journal_append.lua
-- KEYS[2] state    hash    "hook:<name>" -> "<term> <incarnation of the stream, - if it was lost, * if there was none>
--                          <generation>-<sequence>[.<events>] <events passed>"
-- ARGV[1] the hook
-- ARGV[2] term of the node that delivers
-- ARGV[3] '1' if the hook had a cursor before
-- ARGV[4] entries to read at most
-- Result  {incarnation of the stream now, of the cursor, its place, events passed, events that the stream ever had, the
--         entries}; or 'taken': a node of a later term delivers
--
-- Invariant: the term of a cursor never goes back. A new hook begins behind what is there, one whose cursor was lost
-- before it. What another program appended is not read, and no cursor is behind it: the next append deletes it.
-- Needs foreign_ids.lua.

-- Finds the last entry up to which the stream had no more than so many events; nil if there is none.
local function behind_events(count)
  local PAGE = 100
  local before = tostring(LARGEST_GENERATION)
  while true do
    local page = redis.call('XREVRANGE', KEYS[1], before, '-', 'COUNT', PAGE)
    for _, entry in ipairs(page) do
      local total = entry[2][5] == 'total' and tonumber(entry[2][6])
      if total and total <= count then
        return entry[1]
      end
      before = '(' .. entry[1]
    end
    if #page < PAGE then
      return nil
    end
  end
end

local state = redis.call('HMGET', KEYS[2], 'incarnation', 'events', 'hook:' .. ARGV[1])
local exists = redis.call('EXISTS', KEYS[1]) == 1
local incarnation = exists and state[1] or ''
local total = string.format('%.0f', exists and tonumber(state[2] or '0') or 0)
local term, of, place, passed
if state[3] then
  term, of, place, passed = string.match(state[3], '^(%d+) (%S+) (%S+) (%d+)$')
end
if term and tonumber(term) > tonumber(ARGV[2]) then
  return 'taken'
end
if not term then
  if not state[3] then
    redis.call('HINCRBY', KEYS[2], 'hooks', 1)
  end
  if ARGV[3] == '1' then
    of, place, passed = '-', '0-0', '0'
  elseif incarnation == '' then
    of, place, passed = '*', '0-0', '0'
  else
    local last = redis.call('XREVRANGE', KEYS[1], LARGEST_GENERATION, '-', 'COUNT', '1')[1]
    of, place, passed = incarnation, last and last[1] or '0-0', total
  end
end
-- An earlier release moved cursors behind entries of other programs. How many events it had passed was right.
local misplaced = tonumber(string.match(place, '^%d+')) > LARGEST_GENERATION
if misplaced then
  place = exists and of == incarnation and behind_events(tonumber(passed)) or '0-0'
end
if misplaced or term ~= ARGV[2] then
  redis.call('HSET', KEYS[2], 'hook:' .. ARGV[1], ARGV[2] .. ' ' .. of .. ' ' .. place .. ' ' .. passed)
end
local entries = {}
if exists then
  local from = '-'
  if of == incarnation then
    local entry, done = string.match(place, '^([%d-]+)%.(%d+)$')
    -- An entry of which some events are not done is read again.
    from = done and entry or '(' .. place
  end
  entries = redis.call('XRANGE', KEYS[1], from, LARGEST_GENERATION, 'COUNT', ARGV[4])
end
return {incarnation, of, place, passed, total, entries}
