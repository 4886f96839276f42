-- Precedes the steps that mark a session as ended: what it has left as its wills.
--
-- Wills are a property of the session, "$wills". Once they are executed, the field 'executed' says so.

-- Returns what the step answers of the wills of a session that is marked now, or was before: {kind of its end, owner, epoch,
-- principal, roles, properties of the principal, properties}; nothing if there are none to execute.
local function left_wills(key, kind, is_marked)
  local stored = redis.call(
    'HMGET', key, 'properties', 'executed', 'ended_as', 'owner', 'epoch', 'principal', 'roles', 'principal_properties'
  )
  if stored[2] or not string.find(stored[1] or '', '"$wills":', 1, true) then
    return nil
  end
  if not is_marked then
    redis.call('HSET', key, 'ended_as', kind)
  end
  return {
    is_marked and stored[3] or kind, stored[4], stored[5], stored[6] or '', stored[7] or '', stored[8] or '', stored[1]
  }
end
