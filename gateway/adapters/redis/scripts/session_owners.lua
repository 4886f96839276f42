-- List the nodes that have connected sessions in a partition.
--
-- KEYS[1] owned  zset  "<owner> <id>" of every connected session of the partition
-- Result  owners, each once, sorted
--
-- Looks at one entry of each owner and not at every session: they are few, and sessions may be many.
local owners = {}
local from = '-'
while true do
  local entry = redis.call('ZRANGEBYLEX', KEYS[1], from, '+', 'LIMIT', 0, 1)[1]
  if not entry then
    return owners
  end
  -- Neither an owner nor an id holds a space.
  local owner = string.match(entry, '^[^ ]*')
  owners[#owners + 1] = owner
  -- '!' follows the space that ends the owner's name.
  from = '(' .. owner .. '!'
end
