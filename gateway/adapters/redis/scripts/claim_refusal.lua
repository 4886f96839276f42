-- Precedes the steps that claim a session, or tell whether it can be claimed: answers for both what refuses a claim whatever
-- credentials are shown with it. Afterwards `stored`, `owner`, `epoch`, `generation`, `confirmed`, `previous`, `before`,
-- `presented` and `attempt` are there.
--
-- KEYS[1] session    hash  see keys.py
-- KEYS[3] deadlines  zset  id -> end of its window (ms)
-- KEYS[4] ended      zset  "<reason>:<short hash>" of ended sessions -> when to forget it (ms)
-- KEYS[5] opened  string  seal of the newest generation that was opened here
-- ARGV[1] seal of the generation that the caller has adopted
-- ARGV[2] id
-- ARGV[3] claimant
-- ARGV[4] token generation that the client presented
-- ARGV[5] attempt
-- ARGV[6] short hash of the id
-- Result  {'refused', reason}; 'stale' if the caller must adopt the grid again; none if a claim may go on
--
-- Invariant: nothing is written.
-- Needs clock.lua.
local stored = redis.call(
  'HMGET', KEYS[1], 'owner', 'epoch', 'generation', 'confirmed', 'attempt', 'connected', 'previous', 'ended',
  'principal', 'credential_expires', 'before'
)
local owner = stored[1]
if not owner then
  for _, reason in ipairs({'session_closed', 'session_expired', 'revoked'}) do
    local until_ = redis.call('ZSCORE', KEYS[4], reason .. ':' .. ARGV[6])
    if until_ and tonumber(until_) > now then
      return {'refused', reason}
    end
  end
  if redis.call('GET', KEYS[5]) ~= ARGV[1] then
    return 'stale'
  end
  return {'refused', 'session_unknown'}
end
if stored[8] then
  return {'refused', stored[8]}
end
if stored[6] == '0' then
  local deadline = redis.call('ZSCORE', KEYS[3], ARGV[2])
  if deadline and tonumber(deadline) <= now then
    return {'refused', 'session_expired'}
  end
end

local epoch, generation, confirmed = stored[2], stored[3], stored[4]
local previous = stored[7]
local before = stored[11] or previous
local presented, attempt = tonumber(ARGV[4]), tonumber(ARGV[5])
if presented < tonumber(confirmed) then
  return {'refused', 'token_superseded'}
end
if attempt < tonumber(stored[5]) or (attempt == tonumber(stored[5]) and owner ~= ARGV[3]) then
  return {'refused', 'stale_attempt'}
end
