#!lua flags=allow-oom
-- Tell the end of a topic partition's stream.
--
-- KEYS[1] stream  stream of the topic partition
-- Result  id of the last entry, '0-0' if there is none
local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
return last and last[1] or '0-0'
