#!lua flags=allow-oom
-- Note that the wills of a session are executed that is marked as ended.
--
-- KEYS[1] session  hash  see keys.py
-- Result  1, or 0 if it is not there any more: another has finished it
--
-- Invariant: nothing is written of a session that is gone (P7), however long its ender has taken.
if redis.call('HEXISTS', KEYS[1], 'ended') == 0 then
  return 0
end
redis.call('HSET', KEYS[1], 'executed', 1)
return 1
