#!lua flags=allow-oom
-- Acknowledge what a durable subscription has had, up to a position.
--
-- KEYS[1], KEYS[2]  durable.lua
-- ARGV[1], ARGV[2]  durable.lua
-- ARGV[3] session
-- ARGV[4] epoch of its owner
-- ARGV[5] position: "<partition>-<generation>-<sequence>", with commas between them, in the order of their partitions
-- Result  'done'; 'taken': the session does not use it; 'absent': there is none; 'fenced': a newer owner of the session
--         was here
--
-- Invariant: only who uses it moves it, and of each partition only forward. Needs clock.lua and durable.lua.
local each = read()
if not each then
  return 'absent'
end
if each.session ~= ARGV[3] then
  return 'taken'
end
if tonumber(each.epoch) > tonumber(ARGV[4]) then
  return 'fenced'
end
local places, numbers = {}, {}
for _, text in ipairs({each.position, ARGV[5]}) do
  for number, generation, sequence in string.gmatch(text, '(%d+)-(%d+)-(%d+)') do
    number, generation, sequence = tonumber(number), tonumber(generation), tonumber(sequence)
    local before = places[number]
    if not before then
      numbers[#numbers + 1] = number
    end
    if not before or generation > before[1] or (generation == before[1] and sequence > before[2]) then
      places[number] = {generation, sequence}
    end
  end
end
table.sort(numbers)
for place, number in ipairs(numbers) do
  numbers[place] = string.format('%.0f-%.0f-%.0f', number, places[number][1], places[number][2])
end
each.position = #numbers > 0 and table.concat(numbers, ',') or '-'
each.epoch = ARGV[4]
write(each)
return 'done'
