-- Precedes the steps of a session's owner: answers for them where the session is not there.
--
-- Invariant of the seal: a session that is not there means nothing in a partition without it, which was emptied or has
-- gone back: it is lost and not ended, and its node writes it again once the grid is adopted.

-- Answers {'gone', reason}, or 'stale' if the caller must adopt the grid again.
-- ended   zset    "<reason>:<short hash>" of ended sessions -> when to forget it (ms)
-- short   short hash of its id
-- opened  string  seal of the newest generation that was opened here
-- seal    of the generation that the caller has adopted
local function absent(ended, short, opened, seal)
  for _, reason in ipairs({'session_closed', 'session_expired', 'revoked'}) do
    if redis.call('ZSCORE', ended, reason .. ':' .. short) then
      return {'gone', reason}
    end
  end
  if redis.call('GET', opened) ~= seal then
    return 'stale'
  end
  return {'gone', 'session_unknown'}
end
