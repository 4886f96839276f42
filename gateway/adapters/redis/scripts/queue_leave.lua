#!lua flags=allow-oom
-- Let a session consume from a queue no more; what it holds goes back to its place, and to others.
--
-- KEYS[1] to KEYS[12]  queue.lua
-- KEYS[13] consuming  hash  of the session in this partition: queue -> ''
-- ARGV[1..3] queue.lua
-- ARGV[4] session
-- ARGV[5] epoch of its owner; '' if the session has ended, whoever owned it
-- ARGV[6] newest tag that its client has received
-- Result  1; 0 if it did not consume; 'fenced': a newer owner was here; 'stale': the caller must adopt the grid again
--
-- Invariant: nothing of the session is left in the queue (P7). What its client has received counts as a failed delivery,
-- and nothing else does. A queue that the session had declared for its own life ends with it.
local session = ARGV[4]
if not open() then
  return 'stale'
end
local each = consumer(session)
if each and ARGV[5] ~= '' and tonumber(each[1]) > tonumber(ARGV[5]) then
  return 'fenced'
end
if ARGV[5] == '' and meta.owner == session then
  redis.call('HDEL', KEYS[13], queue)
  remove()
  return 1
end
if meta.owner ~= session then
  redis.call('HDEL', KEYS[13], queue)
end
if not each then
  return 0
end
local seen = math.max(each[4], tonumber(ARGV[6]))
redis.call('HDEL', CONSUMERS, session)
redis.call('ZREM', IDLE, session)
consumers[session] = false
for _, member in ipairs(redis.call('ZRANGEBYLEX', HELD, '[' .. session .. ' ', '(' .. session .. '!')) do
  local tag, id = string.match(member, ' (%d+) (%d+)$')
  redis.call('ZREM', HELD, member)
  drop_timer('a' .. member)
  give_back(id, tonumber(tag) <= seen, 0)
end
if meta.source and redis.call('HLEN', CONSUMERS) == 0 then
  -- The life of its subscription begins to run out.
  redis.call('HSET', META, 'used', text(now))
end
if meta[4] == session then
  meta[4] = ''
  local first
  local others = redis.call('HGETALL', CONSUMERS)
  for at = 1, #others, 2 do
    local joined = tonumber(string.match(others[at + 1], '(%d+)$'))
    if not first or joined < first then
      first, meta[4] = joined, others[at]
    end
  end
end
fire()
assign({})
close()
return 1
