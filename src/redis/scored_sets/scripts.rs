//! The scripts, in Lua. `REMOVED` in their text stands for the number.

/// The score of an entry that a script is about to remove. No due time is as late.
pub(super) const REMOVED: &str = "8000000000000000";

/// Writes entries. KEYS: the sets. ARGV: the lowest own score; `replace`, `keep` or `move`; now, as a score; then for
/// each entry its home (an index of KEYS, where a new entry is written), its score, its member and another form of the
/// member or an empty text. An entry may be in any of the sets.
///
/// Returns for each entry 1 (written), 0 (kept) or -1 (missing, and not written). A key of another type has no entries;
/// writing into it is an error, after all other entries were written.
pub(super) const WRITE: &str = "\
local own, mode, now = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3]) \
local out, adds, removes = {}, {}, {} \
local function score_of(set, member) \
  local score = redis.pcall('ZSCORE', set, member) \
  return type(score) == 'string' and tonumber(score) \
end \
local function add(set, score, member) \
  local list = adds[set] or {} \
  adds[set] = list \
  list[#list + 1] = score \
  list[#list + 1] = member \
end \
for i = 4, #ARGV, 4 do \
  local set, member, found = KEYS[tonumber(ARGV[i])], ARGV[i + 2], nil \
  for form = i + 2, i + 3 do \
    for k = 1, #KEYS do \
      local score = ARGV[form] ~= '' and score_of(KEYS[k], ARGV[form]) \
      if score and not found then \
        set, member, found = KEYS[k], ARGV[form], score \
      elseif score and mode == 'replace' then \
        add(KEYS[k], REMOVED, ARGV[form]) \
        removes[KEYS[k]] = true \
      end \
    end \
  end \
  local is_due = found and found >= own and found <= now \
  if mode == 'replace' or is_due or (not found and mode == 'keep') then \
    add(set, ARGV[i + 1], member) \
    out[#out + 1] = 1 \
  else \
    out[#out + 1] = found and 0 or -1 \
  end \
end \
local failed \
for set, list in pairs(adds) do \
  local added = redis.pcall('ZADD', set, unpack(list)) \
  if type(added) == 'table' then failed = added end \
end \
for set in pairs(removes) do redis.call('ZREMRANGEBYSCORE', set, REMOVED, REMOVED) end \
return failed or out";

/// Changes scores that are still the ones that were read. KEYS: the sets. ARGV: for each entry its set (an index of
/// KEYS), its member, the score that was read, and the new one; an empty text removes the entry.
///
/// Returns for each entry 1 (changed), 0 (it has another score) or -1 (missing).
pub(super) const CHANGE: &str = "\
local out, adds, removes = {}, {}, {} \
for i = 1, #ARGV, 4 do \
  local set, score = KEYS[tonumber(ARGV[i])], nil \
  score = redis.call('ZSCORE', set, ARGV[i + 1]) \
  if not score then \
    out[#out + 1] = -1 \
  elseif tonumber(score) ~= tonumber(ARGV[i + 2]) then \
    out[#out + 1] = 0 \
  else \
    local list = adds[set] or {} \
    adds[set] = list \
    local to = ARGV[i + 3] \
    if to == '' then to, removes[set] = REMOVED, true end \
    list[#list + 1] = to \
    list[#list + 1] = ARGV[i + 1] \
    out[#out + 1] = 1 \
  end \
end \
for set, list in pairs(adds) do redis.call('ZADD', set, unpack(list)) end \
for set in pairs(removes) do redis.call('ZREMRANGEBYSCORE', set, REMOVED, REMOVED) end \
return out";

/// Removes entries. KEYS: the sets. ARGV: the lowest score that is removed; then for each entry the highest score that
/// is removed, its member and another form of the member or an empty text.
///
/// Returns the number of entries removed.
pub(super) const REMOVE: &str = "\
local own, count, adds = tonumber(ARGV[1]), 0, {} \
for i = 2, #ARGV, 3 do \
  local highest = tonumber(ARGV[i]) \
  for form = i + 1, i + 2 do \
    for k = 1, #KEYS do \
      local score = ARGV[form] ~= '' and redis.pcall('ZSCORE', KEYS[k], ARGV[form]) \
      score = type(score) == 'string' and tonumber(score) \
      if score and score >= own and score <= highest then \
        local list = adds[KEYS[k]] or {} \
        adds[KEYS[k]] = list \
        list[#list + 1] = REMOVED \
        list[#list + 1] = ARGV[form] \
        count = count + 1 \
      end \
    end \
  end \
end \
for set, list in pairs(adds) do \
  redis.call('ZADD', set, unpack(list)) \
  redis.call('ZREMRANGEBYSCORE', set, REMOVED, REMOVED) \
end \
return count";

/// Replaces the mark of a set. KEYS: the set. ARGV: the prefix of marks, the new mark, and the mark that must be there
/// or an empty text. Returns 1 if it was written.
pub(super) const MARK: &str = "\
if ARGV[3] ~= '' and not redis.call('ZSCORE', KEYS[1], ARGV[3]) then return 0 end \
for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], 'inf', 'inf')) do \
  if string.sub(member, 1, #ARGV[1]) == ARGV[1] then redis.call('ZREM', KEYS[1], member) end \
end \
redis.call('ZADD', KEYS[1], 'inf', ARGV[2]) \
return 1";
