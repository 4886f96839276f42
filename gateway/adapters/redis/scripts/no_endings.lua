-- In the place of endings.lua where no value of a step ends.
local append_ending, note_ending
