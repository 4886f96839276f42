#!lua flags=no-writes
-- Tell how a queue is.
--
-- KEYS[1] meta       hash  queue.lua
-- KEYS[2] messages   hash  id -> record
-- KEYS[3] ready      zset  id -> id
-- KEYS[4] held       zset  "<session> <tag> <id>"
-- KEYS[5] consumers  hash  session -> record
-- KEYS[6] dead       zset  id -> since when
-- KEYS[7] queues     hash  queue -> bounds
-- ARGV[1] queue
-- Result  false if there is no such queue, else {messages, ready, held, dead, bytes, consumers, when the oldest that is ready
--         was sent (ms) or '', messages that were ever sent}
if not redis.call('HGET', KEYS[7], ARGV[1]) then
  return false
end
local oldest = redis.call('ZRANGE', KEYS[3], 0, 0)[1]
local sent = ''
if oldest then
  sent = string.match(redis.call('HGET', KEYS[2], oldest), '^%d+')
end
local meta = redis.call('HMGET', KEYS[1], 'bytes', 'sent')
return {
  redis.call('HLEN', KEYS[2]), redis.call('ZCARD', KEYS[3]), redis.call('ZCARD', KEYS[4]), redis.call('ZCARD', KEYS[6]),
  meta[1] or '0', redis.call('HLEN', KEYS[5]), sent, meta[2] or '0'
}
