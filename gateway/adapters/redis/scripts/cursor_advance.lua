#!lua flags=allow-oom
-- Note up to where a link has come.
--
-- KEYS[1] grid     hash  generation
-- KEYS[2] cursors  hash  topic partition -> "<generation>-<sequence>"; '' -> term of the carrier that noted last
-- ARGV[1] generation that the caller has adopted
-- ARGV[2] term of the carrier
-- ARGV[3..] partition and place of each
-- Result  1; 0 if a carrier of a later term has noted something, -1 if the grid is of another generation: the caller must
--         adopt again; nothing was written then
--
-- Invariant: what a carrier notes counts for nothing once a later one has noted something.
if redis.call('HGET', KEYS[1], 'generation') ~= ARGV[1] then
  return -1
end
if (tonumber(redis.call('HGET', KEYS[2], '') or 0) or 0) > tonumber(ARGV[2]) then
  return 0
end
redis.call('HSET', KEYS[2], '', unpack(ARGV, 2))
return 1
