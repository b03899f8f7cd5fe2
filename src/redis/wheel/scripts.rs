//! Scripts of the wheel. Each compares and writes in one step.
//!
//! `KEYS[1]` is the prefix of lapsed's own keys, `ARGV[1]` the length of a tick in milliseconds, `ARGV[2]` the number of
//! slots. The names of the other keys are computed, so these scripts need one node that holds all keys.

/// Writes entries. ARGV from 3: the time by which an entry that is kept must not be due, or -1 to keep none; then for each
/// entry the number of its hash, its member and its due time. Returns how many were written.
pub(super) const ARM: &str = "\
local own, tick, slots, now = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]) \
local written = 0 \
local function set(due) return string.format('%s%d', own, math.floor(due / tick) % slots) end \
for i = 4, #ARGV, 3 do \
  local index, member, due = own .. 'due:' .. ARGV[i], ARGV[i + 1], ARGV[i + 2] \
  local known = redis.pcall('HGET', index, member) \
  if type(known) == 'table' then known = false end \
  local old = tonumber(known or nil) \
  local keeps = now >= 0 and old and old > now \
  if not keeps then \
    local to = set(tonumber(due)) \
    if old and set(old) ~= to then redis.pcall('ZREM', set(old), member) end \
    local added = redis.pcall('ZADD', to, due, member) \
    if type(added) == 'number' then \
      redis.pcall('HSET', index, member, due) \
      written = written + 1 \
    elseif string.find(added.err, 'WRONGTYPE', 1, true) == nil then \
      return added \
    end \
  end \
end \
return written";

/// Removes entries. ARGV from 3: for each entry the number of its hash, its member, and the latest due time of an entry
/// that is removed. An entry that the index has lost is removed if that is its due time.
pub(super) const REMOVE: &str = "\
local own, tick, slots = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]) \
for i = 3, #ARGV, 3 do \
  local index, member, latest = own .. 'due:' .. ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2]) \
  local function set(due) return string.format('%s%d', own, math.floor(due / tick) % slots) end \
  local known = redis.pcall('HGET', index, member) \
  if type(known) == 'string' and tonumber(known) <= latest then \
    redis.pcall('ZREM', set(tonumber(known)), member) \
    redis.call('HDEL', index, member) \
  elseif latest < 9007199254740992 then \
    local score = redis.pcall('ZSCORE', set(latest), member) \
    if type(score) == 'string' and tonumber(score) <= latest then \
      redis.call('ZREM', set(latest), member) \
    end \
  end \
end \
return 0";

/// Writes that a tick is handled, unless this run of the server has had a later one. ARGV[3]: the tick; ARGV[4]: the run of
/// the server; ARGV[5]: the tick from which visits are counted in this run, kept if one was written; ARGV[6]: 1 if a tick of
/// this run must be there. Returns 1 if a tick was there, or nil, and writes nothing, if the one of this run is missing.
pub(super) const MARK: &str = "\
local key = KEYS[1] .. 'tick' \
local old = redis.pcall('GET', key) \
if type(old) == 'table' then old = false end \
local tick, run, from = string.match(old or '', '^(%d+):?([^:]*):?(%d*)$') \
local is_same = run == ARGV[4] \
if ARGV[6] == '1' and not is_same then return false end \
if not is_same or from == '' then from = ARGV[5] end \
if not is_same or tonumber(tick) < tonumber(ARGV[3]) then \
  redis.call('SET', key, ARGV[3] .. ':' .. ARGV[4] .. ':' .. from) \
end \
return old and 1 or 0";

/// Reads a page of a list. ARGV from 3: the list, the list of refused elements, how many elements to skip, how many to
/// read, the longest element that is read, and after how many bytes to stop. An element that is too long is moved to the
/// refused ones, by this script, because it is not worth sending.
///
/// Returns the number of elements moved, then the elements.
pub(super) const READ: &str = "\
local list, refused, at = ARGV[3], ARGV[4], tonumber(ARGV[5]) \
local left, longest, room = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8]) \
local out = {0} \
while left > 0 and room > 0 do \
  local element = redis.pcall('LINDEX', list, at) \
  if type(element) ~= 'string' then break end \
  left = left - 1 \
  if #element <= longest then \
    out[#out + 1] = element \
    room = room - #element \
    at = at + 1 \
  else \
    redis.call('RPUSH', refused, element) \
    redis.call('LREM', list, 1, element) \
    out[1] = out[1] + 1 \
  end \
end \
return out";

/// Handles elements of a list. ARGV from 3: the list, the list of refused elements, the run of the server, and 1 if the last
/// tick must be of this run; then for each element itself, `take`, `refuse` or `drop`, and for `take` the field and the value for the hash of taken entries, the due
/// time, and for how many milliseconds equal entries are counted.
///
/// Equal entries with one due time have the same field but for a number, which counts them in this run of the server. The
/// copy is written before the element is removed, so that an error between the two loses nothing. Returns for each element
/// its number, or 0 if it was gone. Elements that are not taken have the number 1. Returns nil, and does nothing, if the last
/// tick is of another run, or missing.
pub(super) const HANDLE: &str = "\
local own, list, refused, out = KEYS[1], ARGV[3], ARGV[4], {} \
if ARGV[6] == '1' then \
  local tick = redis.pcall('GET', own .. 'tick') \
  if type(tick) ~= 'string' or string.match(tick, '^%d+:([^:]*)') ~= ARGV[5] then return false end \
end \
for i = 7, #ARGV, 6 do \
  local element, verb, field, number = ARGV[i], ARGV[i + 1], ARGV[i + 2], 1 \
  local name, seen = field, own .. 'seen:' .. ARGV[5] .. ':' .. ARGV[i + 4] \
  local equal = string.match(field, '[^~]*$') \
  if verb == 'take' then \
    local before = redis.pcall('HGET', seen, equal) \
    if type(before) == 'string' then number = tonumber(before) + 1 end \
    if number > 1 then name = field .. number end \
    redis.call('HSET', own .. 'taken', name, ARGV[i + 3]) \
    redis.pcall('HSET', seen, equal, number) \
    redis.pcall('PEXPIRE', seen, ARGV[i + 5]) \
  end \
  if verb == 'refuse' then redis.call('RPUSH', refused, element) end \
  if redis.call('LREM', list, 1, element) == 0 then \
    if verb == 'take' then \
      redis.call('HDEL', own .. 'taken', name) \
      redis.pcall('HINCRBY', seen, equal, -1) \
    end \
    if verb == 'refuse' then redis.call('RPOP', refused) end \
    number = 0 \
  end \
  out[#out + 1] = number \
end \
return out";
