#!lua
-- Put questions of one session, each exactly once, in the order of its requests.
--
-- KEYS[1] to KEYS[14]  exchange.lua
-- ARGV[1..3] exchange.lua
-- ARGV[4..7] queue_receipts.lua
-- ARGV[8] revision of the selectors that the caller knows
-- ARGV[9] questions that the partition may hold; 0 for no limit
-- ARGV[10] bytes of them; likewise
-- ARGV[11..] for each question: request, milliseconds until it must be answered, '' or 'p<principal>' or 's<session>' for
--         whom alone it is, what handlers are given, how many selectors match its path, and these
-- Result  {last entry of the exchanges, and for each question 'put', 'none' (nobody handles it who is there), 'busy' (they
--         have as many as they take) or 'full' (no room), after '=' if that was so before; '=gone' if it was put before and
--         nothing is known of it}
--         {'selectors', revision, selector...}: nothing was done, the selectors are others
--         'fenced': a newer owner was here, or the session has ended; 'stale': the caller must adopt the grid again
--
-- Invariant: as in exchange.lua and queue_receipts.lua. What is refused is refused for good.
if not open() then
  return 'stale'
end
if not open_receipts() then
  return 'fenced'
end
fire()
if ARGV[8] ~= revision then
  close()
  return {'selectors', revision, unpack(redis.call('HKEYS', SELECTORS))}
end
local STATES = {p = 'put', n = 'none', b = 'busy', f = 'full'}
local results, count, at = {}, redis.call('HLEN', QUESTIONS), 11

-- Finds who is given a question: by the hashes of its selectors, or the one session for which it is.
local function find(groups, selectors, target)
  if string.sub(target, 1, 1) ~= 's' then
    return choose(groups)
  end
  local name = string.sub(target, 2)
  local each = handler(name)
  if each and not each.away then
    for _, mine in ipairs(each.selectors) do
      if selectors[mine] then
        return each.has < each.most and name or nil, true
      end
    end
  end
end

local most, most_bytes = tonumber(ARGV[9]), tonumber(ARGV[10])
while at <= #ARGV do
  local request, wait, target, words = ARGV[at], tonumber(ARGV[at + 1]), ARGV[at + 2], ARGV[at + 3]
  local matching = tonumber(ARGV[at + 4])
  local id = session .. ' ' .. request
  local answer
  if tonumber(request) <= newest_request then
    close_receipts()
    received = {}
    local _, _, what = find_receipt(tonumber(request))
    if what == 'p' and redis.call('HEXISTS', QUESTIONS, id) == 0 then
      what = nil
    end
    answer = '=' .. (what and STATES[what] or 'gone')
  else
    local groups, selectors = {}, {}
    for number = 1, matching do
      local selector = ARGV[at + 4 + number]
      selectors[selector] = true
      if string.sub(target, 1, 1) == 'p' then
        selector = selector .. '\n' .. digest(string.sub(target, 2))
      end
      groups[number] = digest(selector)
    end
    local name, busy = find(groups, selectors, target)
    local size = #words + QUESTION_BYTES
    local state = 'p'
    if not name then
      state = busy and 'b' or 'n'
    elseif (most > 0 and count + 1 > most) or (most_bytes > 0 and bytes + size > most_bytes) then
      state = 'f'
    else
      local each = {deadline = now + wait, size = size, groups = groups}
      each.directed = string.sub(target, 1, 1) == 's' and 'p' or '-'
      redis.call('HSET', TEXTS, id, words)
      redis.call('ZADD', ASKED, 0, id)
      count, bytes = count + 1, bytes + size
      give(id, each, name)
    end
    receive(request, '0', state)
    answer = STATES[state]
  end
  results[#results + 1] = answer
  at = at + 5 + matching
end
redis.call('HSET', CONSUMING, '?/', '')
close_receipts()
close()
return {position(), unpack(results)}
