#!lua flags=allow-oom
-- Tell what is known of questions of a session.
--
-- KEYS[1] to KEYS[14]  exchange.lua
-- ARGV[1..3] exchange.lua
-- ARGV[4..] numbers of the requests with which they were put
-- Result  {last entry of the exchanges, and for each '?<milliseconds left>', '-' if nothing is known, or how it ended and
--         the text}; 'stale': the caller must adopt the grid again
if not open() then
  return 'stale'
end
fire()
local result = {''}
for at = 4, #ARGV do
  local id = session .. ' ' .. ARGV[at]
  local found = question_now(id)
  if not found then
    result[#result + 1] = '-'
  elseif found.state == 'o' then
    result[#result + 1] = redis.call('HGET', ANSWERS, id) or '-'
  else
    result[#result + 1] = '?' .. text(found.deadline - now)
  end
end
close()
result[1] = position()
return result
