#!lua flags=allow-oom,no-writes
-- Add up what sessions of a partition take that none of some nodes counts.
--
-- KEYS[1] and all others  hash  of each session; see keys.py
-- ARGV[1]  bytes of a session with nothing in it
-- ARGV[2]  bytes of an entry of its list of selections besides its text
-- ARGV[3]  bytes of its receipts in a topic partition
-- ARGV[4]  bytes of a handler besides its text in the session
-- ARGV[5…] nodes that count their sessions themselves
-- Result   principal and bytes, in turn, each principal once
--
-- Invariant: changes nothing; what is no session, or has ended, is passed over.
local counted = {}
for at = 5, #ARGV do
  counted[ARGV[at]] = true
end

local function entries_bytes(key)
  local sum = 0
  for _, field in ipairs(redis.call('HKEYS', key)) do
    if string.sub(field, 1, 2) == 's:' then
      sum = sum + #field - 1 + ARGV[2]
    end
  end
  return sum
end

local function texts_bytes(text)
  return text and text ~= '{}' and #text or 0
end

local sums, order = {}, {}
for _, key in ipairs(KEYS) do
  local stored = redis.pcall(
    'HMGET', key, 'owner', 'principal', 'ended', 'partitions', 'properties', 'principal_properties', 'roles',
    'handlers'
  )
  local principal = stored[2]
  if not stored.err and stored[1] and principal and not stored[3] and not counted[stored[1]] then
    local size = ARGV[1] + texts_bytes(stored[5]) + texts_bytes(stored[6]) + texts_bytes(stored[7]) + entries_bytes(key)
    for _ in string.gmatch(stored[4] or '', '%d+') do
      size = size + ARGV[3]
    end
    for _ in string.gmatch(stored[8] or '', '":') do
      size = size + ARGV[4]
    end
    size = size + texts_bytes(stored[8])
    if not sums[principal] then
      order[#order + 1] = principal
    end
    sums[principal] = (sums[principal] or 0) + size
  end
end

local answer = {}
for _, principal in ipairs(order) do
  answer[#answer + 1] = principal
  answer[#answer + 1] = sums[principal]
end
return answer
