#!lua
-- Put the next events of a shared subscription into its queue, each once; or look where it is.
--
-- KEYS[1] to KEYS[12]  queue.lua
-- ARGV[1..3] queue.lua
-- ARGV[4] bounds of the queue, as in queue_send.lua
-- ARGV[5] where it was before these events; '' to look only
-- ARGV[6] where it is after them
-- ARGV[7..] for each event: bytes of its headers, headers and value
-- Result  {where it is now, how many messages are ready, for what it is}; 'none': nobody has declared it;
--         'stale': the caller must adopt the grid again
--
-- Invariant: an event becomes a message once, in order, however many nodes feed at the same time: only who knows where it
-- is moves it on.
if not open(ARGV[4]) then
  return 'stale'
end
if not meta.source then
  return 'none'
end
local fed = redis.call('HGET', META, 'fed')
if ARGV[5] == fed then
  fed = ARGV[6]
  redis.call('HSET', META, 'fed', fed)
  fire()
  local fresh, fields = {}, {}
  for at = 7, #ARGV, 2 do
    local record = text(now) .. ' 0 ' .. ARGV[at] .. ' ' .. ARGV[at + 1]
    newest_id, meta.sent = newest_id + 1, meta.sent + 1
    fresh[#fresh + 1] = text(newest_id)
    fields[#fields + 1], fields[#fields + 2] = fresh[#fresh], record
    meta[1] = meta[1] + #record + MESSAGE_BYTES
  end
  call_many('HSET', MESSAGES, fields)
  assign(fresh)
  close()
end
return {fed, redis.call('ZCARD', READY), meta.source}
