//! Scripts that run in the Redis of another system. They need no key of lapsed, and answer in bounded time and size.

use redis::Cmd;

/// Reads the entries of a sorted set after (score, member), in the order of the set: nearest due time first. Entries may be
/// added, moved and removed meanwhile. Returns member, score and length for each; of a long member only its beginning.
pub const RANGE: &str = r"
local set, score, last = KEYS[1], ARGV[1], ARGV[2]
local count, longest, budget = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local function comes_after(member)
  local most = math.min(#member, #last, longest)
  for i = 1, most do
    local a, b = string.byte(member, i), string.byte(last, i)
    if a ~= b then return a > b end
  end
  return most < longest and #member > #last
end
local rank = 0
if score ~= '' then
  local low = redis.call('ZCOUNT', set, '-inf', '(' .. score)
  local high = redis.call('ZCOUNT', set, '-inf', score)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if comes_after(redis.call('ZRANGE', set, middle, middle)[1]) then high = middle else low = middle + 1 end
  end
  rank = low
end
local answer, bytes = {}, 0
while #answer < count * 3 and bytes < budget do
  local found = redis.call('ZRANGE', set, rank, rank + 19, 'WITHSCORES')
  if #found == 0 then break end
  for i = 1, #found, 2 do
    local member = string.sub(found[i], 1, longest)
    answer[#answer + 1] = member
    answer[#answer + 1] = found[i + 1]
    answer[#answer + 1] = #found[i]
    bytes = bytes + #member
  end
  rank = rank + 20
end
return answer";

/// Reads fields of hashes, until the budget is spent. The first field is the large one: if it is too long, its length is
/// answered instead.
pub const HASHES: &str = r"
local longest, budget = tonumber(ARGV[1]), tonumber(ARGV[2])
local fields, others = {}, {}
for f = 3, #ARGV do
  fields[#fields + 1] = ARGV[f]
  if f > 3 then others[#others + 1] = ARGV[f] end
end
local answer, bytes = {}, 0
for k = 1, #KEYS do
  if bytes >= budget then break end
  local values = {}
  local length = redis.pcall('HSTRLEN', KEYS[k], fields[1])
  if type(length) ~= 'number' then
    for f = 1, #fields do values[f] = false end
  elseif length <= longest then
    values = redis.call('HMGET', KEYS[k], unpack(fields))
  else
    if #others > 0 then values = redis.call('HMGET', KEYS[k], unpack(others)) end
    table.insert(values, 1, length)
  end
  for f = 1, #fields do
    local value = values[f]
    if type(value) == 'string' then
      if #value > longest then values[f] = #value end
      bytes = bytes + math.min(#value, longest)
    end
  end
  answer[k] = values
end
return answer";

/// Removes entries of a sorted set that have the same score, and whose hash has the same content, as when they were read.
/// `{also}` removes what belongs to such an entry. Returns for each 1 (removed), 0 (changed) or 2 (not there any more).
pub const TAKE: &str = r"
local answer = {}
for i = 3, #ARGV, 3 do
  local member, score, content = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local job = ARGV[1] .. member
  local present = redis.call('ZSCORE', KEYS[1], member)
  local same = present == score
  if same and ARGV[2] ~= '' then same = redis.call('HGET', job, ARGV[2]) == content end
  if same then
    redis.call('ZREM', KEYS[1], member)
    {also}
  end
  answer[#answer + 1] = same and 1 or (present and 0 or 2)
end
return answer";

/// Reads elements of a list from an index on. Returns each with its length; of a long one only the beginning.
pub const ELEMENTS: &str = r"
local at, count, longest, budget = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local answer, bytes = {}, 0
while #answer < count * 2 and bytes < budget do
  local found = redis.call('LRANGE', KEYS[1], at, at + 19)
  if #found == 0 then break end
  for i = 1, #found do
    local value = string.sub(found[i], 1, longest)
    answer[#answer + 1] = value
    answer[#answer + 1] = #found[i]
    bytes = bytes + #value
  end
  at = at + 20
end
return answer";

/// Removes equal elements of a list, one for each that was read.
pub const TAKE_ELEMENTS: &str = r"
local answer = {}
for i = 1, #ARGV do answer[i] = redis.call('LREM', KEYS[1], 1, ARGV[i]) end
return answer";

/// A call of a script with this number of keys.
pub fn script(text: &str, keys: usize) -> Cmd {
    let mut call = redis::cmd("EVAL");
    call.arg(text).arg(keys);
    call
}
