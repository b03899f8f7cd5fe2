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
