#!lua
-- Change parts of a session.
--
-- KEYS[1] session  hash  see keys.py
-- KEYS[2] ended    zset  "<reason>:<short hash>" of ended sessions -> when to forget it (ms)
-- KEYS[3] opened  string  seal of the newest generation that was opened here
-- ARGV[1] seal of the generation that the caller has adopted
-- ARGV[2] owner that writes
-- ARGV[3] epoch of its claim
-- ARGV[4] short hash of the id
-- ARGV[5] new oldest accepted token generation, '' to leave it
-- ARGV[6] what becomes of the list of selections: '' it stays, 'all' it is written anew, 'some' entries of it change
-- ARGV[7] how many entries go, n
-- ARGV[8] how many entries come, m
-- ARGV[9..8+n] selectors whose entries go
-- ARGV[9+n..8+n+m] entries that come at the end, "+selector" or "-selector"; one with the same selector goes
-- ARGV[9+n+m..] fields and new values
-- Result  'ok', 'fenced', {'gone', reason}, or 'stale': the caller must adopt the grid again
--
-- Invariant: only the stored owner with the stored epoch writes (P3); confirmed never falls. Asked twice in a row, the list
-- selects what it does when asked once. A change of some entries takes time in proportion to them.
-- Needs session_absent.lua and selections.lua. By its first line Redis refuses it as a whole at the memory limit, and not
-- in the middle.
local stored = redis.call('HMGET', KEYS[1], 'owner', 'epoch', 'confirmed', 'ended')
if not stored[1] then
  return absent(KEYS[2], ARGV[4], KEYS[3], ARGV[1])
end
if stored[1] ~= ARGV[2] or stored[2] ~= ARGV[3] then
  return 'fenced'
end
if stored[4] then
  return {'gone', stored[4]}
end
if ARGV[5] ~= '' and tonumber(ARGV[5]) > tonumber(stored[3]) then
  redis.call('HSET', KEYS[1], 'confirmed', ARGV[5])
end
local going, coming = tonumber(ARGV[7]), tonumber(ARGV[8])
if ARGV[6] == 'all' then
  drop_entries(KEYS[1])
elseif ARGV[6] == 'some' then
  convert_entries(KEYS[1])
  for at = 9, 8 + going do
    redis.call('HDEL', KEYS[1], 's:' .. ARGV[at])
  end
end
if coming > 0 then
  put_entries(KEYS[1], ARGV, 9 + going, 8 + going + coming)
end
local fields = 9 + going + coming
if #ARGV >= fields then
  redis.call('HSET', KEYS[1], unpack(ARGV, fields))
end
return 'ok'
