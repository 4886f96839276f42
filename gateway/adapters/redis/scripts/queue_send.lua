#!lua
-- Put messages of one session into a queue, each exactly once, in the order of its requests; assign what can be.
--
-- KEYS[1] to KEYS[12]  queue.lua
-- KEYS[13], KEYS[14]  queue_receipts.lua
-- ARGV[1..3]   queue.lua
-- ARGV[4..7]   queue_receipts.lua
-- ARGV[8] bounds of the queue: messages, bytes, '1' to drop the oldest, failed deliveries, milliseconds to hold a message,
--         '1' for exclusive, dead letters, bytes of them, and milliseconds for which one is kept
-- ARGV[9] queues that the partition may hold
-- ARGV[10..] for each message: request, delay (ms), life (ms, 0 for ever), bytes of its headers, headers and value
-- Result  for each message "<id>", "=<id>" if it was sent before ("=0": that receipt was forgotten), "-" or "=-" if there
--         was no room for it, now or before; "!" if nobody has declared the queue, and nothing is remembered of the request;
--         'fenced': a newer owner was here, or the session has ended; 'stale': the caller must adopt the grid again
--
-- Invariant: as in queue.lua and queue_receipts.lua. What is refused for lack of room is refused for good.
if not open(ARGV[8]) then
  return 'stale'
end
if not open_receipts() then
  return 'fenced'
end
local undeclared = is_undeclared()
if not undeclared then
  fire()
end
local result, fresh, fields = {}, {}, {}
local count = redis.call('HLEN', MESSAGES) - redis.call('ZCARD', DEAD)
local may_exist = known or redis.call('HLEN', QUEUES) - 1 < tonumber(ARGV[9])

-- Stores what was taken in: before something is looked for, and at the end.
local function store()
  call_many('HSET', MESSAGES, fields)
  fields = {}
end

-- Drops the oldest for a message, if that makes room for it; else nothing is dropped.
local function make_room(size)
  local over, over_bytes = count + 1 - bounds[1], meta[1] + size - bounds[2]
  if over <= 0 and over_bytes <= 0 then
    return true
  end
  if bounds[3] ~= 1 or size > bounds[2] then
    return false
  end
  -- What somebody can be given is not dropped.
  store()
  assign(fresh)
  fresh = {}
  if behind then
    -- What has expired has made room.
    count = redis.call('HLEN', MESSAGES) - redis.call('ZCARD', DEAD)
    over, over_bytes = count + 1 - bounds[1], meta[1] + size - bounds[2]
    if over <= 0 and over_bytes <= 0 then
      return true
    end
  end
  local dropped = count_oldest(0, 0, over, over_bytes)
  if not dropped then
    return false
  end
  for _, id in ipairs(redis.call('ZRANGE', READY, 0, dropped - 1)) do
    drop(id)
  end
  count = count - dropped
  return true
end

for at = 10, #ARGV, 5 do
  local request, delay, expires = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  local answer
  if request <= newest_request then
    close_receipts()
    received = {}
    local _, number, what = find_receipt(request)
    if what == 's' then
      answer = '=' .. number
    elseif what == '-' and number ~= '1' then
      answer = '=-'
    else
      answer = undeclared and '!' or '=0'
    end
  elseif undeclared then
    answer = '!'
  else
    local ends = expires > 0 and text(now + expires) or '0'
    local record = text(now) .. ' ' .. ends .. ' ' .. ARGV[at + 3] .. ' ' .. ARGV[at + 4]
    if may_exist and make_room(#record + MESSAGE_BYTES) then
      newest_id, meta.sent = newest_id + 1, meta.sent + 1
      local id = text(newest_id)
      fields[#fields + 1], fields[#fields + 2] = id, record
      count, meta[1] = count + 1, meta[1] + #record + MESSAGE_BYTES
      if expires > 0 then
        set_timer('e' .. id, now + expires)
      end
      if delay > 0 then
        set_timer('r' .. id, now + delay)
      else
        fresh[#fresh + 1] = id
      end
      answer = id
      receive(ARGV[at], id, 's')
    else
      answer = '-'
      receive(ARGV[at], '2', '-')
    end
  end
  result[#result + 1] = answer
end
if undeclared then
  return result
end
store()
assign(fresh)
close_receipts()
close()
return result
