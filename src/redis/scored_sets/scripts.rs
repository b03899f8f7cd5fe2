//! The scripts, in Lua. `REMOVED` in their text stands for the number.
//!
//! KEYS are the sets. The first arguments of each are the name of the register, the scope of the caller and the lowest
//! own score. The register is no key of the scripts: a user without a right to it can still write entries. Such a user
//! gets no proof, and entries are not taken.

/// The score of an entry that a script is about to remove. No due time is as late.
pub(super) const REMOVED: &str = "8000000000000000";

/// The first arguments of every script that begins with [`PRELUDE`].
pub(super) const FIRST_ARGS: usize = 3;

/// What scripts share.
///
/// * `field(name)`: a text in the register, or `nil`.
/// * `score_of(set, member)`: a number, or `nil`. A key of another type has no entries.
/// * `places(i)`: reads from `ARGV[i]` on the index of the only set that can have the member, or 0, the member, and another
///   form of it or an empty text. Returns the key of the task, the first form (a member that fits no key is kept in the
///   register, its text in the arguments is empty), and a list of the entries: set, form, score.
/// * `count(set)`: counts a change of a set, in its mark and in the register. A set that was restored from an older copy
///   has another number, and so proves nothing.
/// * `proves()`: 1 if a missing entry was removed by a program, else 0.
/// * `lost()`: when the sets last lost data, in milliseconds, until every row has its entry again; else an empty text.
pub(super) const PRELUDE: &str = "\
local reg, scope, own = ARGV[1], ARGV[2], tonumber(ARGV[3]) \
local function field(name) \
  local found = redis.pcall('HGET', reg, name) \
  return type(found) == 'string' and found or nil \
end \
local function score_of(set, member) \
  local score = redis.pcall('ZSCORE', set, member) \
  return type(score) == 'string' and tonumber(score) or nil \
end \
local function places(i) \
  local only, first, other, found = tonumber(ARGV[i]), ARGV[i + 1], ARGV[i + 2], {} \
  local key = other ~= '' and other or first \
  if first == '' then first = field('member:' .. key) or '' end \
  for n, form in ipairs({first, other}) do \
    for k = 1, #KEYS do \
      local may_be = form ~= '' and (n == 2 or only == 0 or only == k) \
      local score = may_be and score_of(KEYS[k], form) \
      if score then found[#found + 1] = {KEYS[k], form, score} end \
    end \
  end \
  return key, first, found \
end \
local function clear(set) redis.call('ZREMRANGEBYSCORE', set, REMOVED, REMOVED) end \
local function count(set) \
  local before = field('count:' .. set) \
  if not before then return end \
  redis.call('HINCRBY', reg, 'count:' .. set, 1) \
  local old = '#lapsed:count:' .. before \
  if score_of(set, old) then \
    redis.call('ZADD', set, 'inf', string.format('#lapsed:count:%d', before + 1), REMOVED, old) \
    clear(set) \
  end \
end \
local function proves() \
  local info = redis.pcall('INFO', 'server') \
  local run = type(info) == 'string' and string.match(info, 'run_id:(%w+)') \
  local nonce = field('nonce') \
  if not run or not nonce or field('scope') ~= scope then return 0 end \
  for k = 1, #KEYS do \
    local counted = field('count:' .. KEYS[k]) \
    if not counted or not score_of(KEYS[k], '#lapsed:count:' .. counted) \
      or not score_of(KEYS[k], '#lapsed:kept:' .. run .. ':' .. nonce) then return 0 end \
  end \
  return 1 \
end \
local function lost() return field('lost') or '' end ";

/// Writes entries. After the first arguments: `replace`, `keep` or `move`; now, as a score; then for each entry its home
/// (an index of KEYS, where a new entry is written), its score, the three of `places`, and the due time of its arming in
/// milliseconds. One that was taken for a start of this arming is written again if it is for a later time, which is
/// that of a retry. Any other one that was taken is kept: the task starts now, or was moved since the caller looked.
///
/// Returns for each entry 1 (written), 0 (kept) or -1 (missing, and not written). A key of another type has no entries;
/// writing into it is an error, after all other entries were written.
pub(super) const WRITE: &str = "\
local mode, now = ARGV[4], tonumber(ARGV[5]) \
local out, adds, removes = {}, {}, {} \
local function add(set, score, member) \
  local list = adds[set] or {} \
  adds[set] = list \
  list[#list + 1] = score \
  list[#list + 1] = member \
end \
for i = 6, #ARGV, 6 do \
  local key, first, entries = places(i + 2) \
  local set, member, found = KEYS[tonumber(ARGV[i])], first ~= '' and first or key, nil \
  for _, entry in ipairs(entries) do \
    if not found then \
      set, member, found = entry[1], entry[2], entry[3] \
    elseif mode == 'replace' then \
      add(entry[1], REMOVED, entry[2]) \
      removes[entry[1]] = true \
    end \
  end \
  local is_due = found and found >= own and found <= now and found ~= tonumber(ARGV[i + 1]) \
  local taken = not found and field('taken:' .. key) \
  local is_taken = taken == ARGV[i + 5] and tonumber(ARGV[i + 1]) > now \
  if mode == 'replace' or is_due or is_taken or (not found and mode == 'keep') then \
    add(set, ARGV[i + 1], member) \
    redis.pcall('HDEL', reg, 'taken:' .. key) \
    out[#out + 1] = 1 \
  else \
    out[#out + 1] = (found or taken) and 0 or -1 \
  end \
end \
local failed \
for set, list in pairs(adds) do \
  local added = redis.pcall('ZADD', set, unpack(list)) \
  if type(added) == 'table' then failed = added else count(set) end \
end \
for set in pairs(removes) do clear(set) end \
return failed or out";

/// Changes scores that are still the ones that were read. After the first arguments: for each entry its set (an index of
/// KEYS), its member, the score that was read, the new one (an empty text removes the entry), the key of its task, the due
/// time of its arming in milliseconds, and `keep` if the register has to keep the member.
///
/// Returns for each entry 1 (changed), 0 (it has another score), 2 (taken for a start, from now on of this arming: the task was
/// moved while it started) or -1 (missing).
pub(super) const CHANGE: &str = "\
local out, adds, removes = {}, {}, {} \
for i = 4, #ARGV, 7 do \
  local set, member, to, key = KEYS[tonumber(ARGV[i])], ARGV[i + 1], ARGV[i + 3], ARGV[i + 4] \
  local keep = ARGV[i + 6] == 'keep' \
  local score = redis.call('ZSCORE', set, member) \
  if not score then \
    local taken = field('taken:' .. key) \
    if taken and to ~= '' then redis.pcall('HSET', reg, 'taken:' .. key, ARGV[i + 5]) end \
    out[#out + 1] = taken and 2 or -1 \
  elseif tonumber(score) ~= tonumber(ARGV[i + 2]) then \
    out[#out + 1] = 0 \
  else \
    local list = adds[set] or {} \
    adds[set] = list \
    if keep and to == '' then \
      redis.pcall('HDEL', reg, 'member:' .. key) \
    elseif keep then \
      redis.call('HSET', reg, 'member:' .. key, member) \
    end \
    if to == '' then to, removes[set] = REMOVED, true end \
    redis.pcall('HDEL', reg, 'taken:' .. key) \
    list[#list + 1] = to \
    list[#list + 1] = member \
    out[#out + 1] = 1 \
  end \
end \
for set, list in pairs(adds) do \
  redis.call('ZADD', set, unpack(list)) \
  count(set) \
end \
for set in pairs(removes) do clear(set) end \
return out";

/// Removes entries, and forgets that they were taken. After the first arguments: the lowest score that is removed; then
/// for each entry the highest score that is removed, the three of `places`, and the latest due time of an arming in
/// milliseconds whose entry was taken.
///
/// Returns the number of entries removed.
pub(super) const REMOVE: &str = "\
local lowest, removed, adds = tonumber(ARGV[4]), 0, {} \
for i = 5, #ARGV, 5 do \
  local highest, stays = tonumber(ARGV[i]), false \
  local key, _, entries = places(i + 1) \
  for _, entry in ipairs(entries) do \
    local set, form, score = entry[1], entry[2], entry[3] \
    if score >= lowest and score <= highest then \
      local list = adds[set] or {} \
      adds[set] = list \
      list[#list + 1] = REMOVED \
      list[#list + 1] = form \
      removed = removed + 1 \
    else \
      stays = true \
    end \
  end \
  local taken = field('taken:' .. key) \
  if taken and tonumber(taken) <= tonumber(ARGV[i + 4]) then redis.call('HDEL', reg, 'taken:' .. key) end \
  if ARGV[i + 2] == '' and not stays then redis.pcall('HDEL', reg, 'member:' .. key) end \
end \
for set, list in pairs(adds) do \
  redis.call('ZADD', set, unpack(list)) \
  clear(set) \
end \
return removed";

/// Takes the entries of tasks that are about to start: from then on `ZREM` finds none. The register notes it until the
/// task has ended, so that the absence is no evidence. After the first arguments: how programs write scores (`seconds`,
/// `milliseconds` or `auto`); the lowest score in milliseconds for `auto`; now, as an own score; then for each entry the
/// due time of its arming in milliseconds, and the three of `places`.
///
/// lapsed's own entry is taken if it is due by now, one of a program if it is not for a later time than the arming. An entry that
/// was taken for another arming is taken for this one: a signal of that arming came between. A missing entry that may have been
/// lost is noted, too: its task starts.
///
/// Returns whether a missing entry was removed by a program, `lost()`, and for each entry 1 (taken, now or before), 0
/// (missing), 3 (not to be taken: lapsed has written it for a later time, or the register cannot note it), or the text of
/// the later score that a program wrote.
pub(super) const TAKE: &str = "\
local unit, millis, now = ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6]) \
local out, adds, missing = {}, {}, {} \
local function micros(score) \
  if score >= own then return score end \
  local per_unit = (unit == 'seconds' or (unit == 'auto' and score < millis)) and 1e6 or 1e3 \
  return math.floor(score * per_unit + 0.5) \
end \
for i = 7, #ARGV, 4 do \
  local due, answer, ripe = ARGV[i], 0, {} \
  local key, _, entries = places(i + 1) \
  for _, entry in ipairs(entries) do \
    local score = entry[3] \
    if micros(score) <= (score < own and due * 1000 or now) then \
      ripe[#ripe + 1] = entry \
    elseif score < own then \
      answer = string.format('%.17g', score) \
    elseif answer == 0 then \
      answer = 3 \
    end \
  end \
  if answer == 0 and #ripe > 0 then \
    local noted = redis.pcall('HSET', reg, 'taken:' .. key, due) \
    answer = type(noted) == 'number' and 1 or 3 \
    for _, entry in ipairs(answer == 1 and ripe or {}) do \
      local list = adds[entry[1]] or {} \
      adds[entry[1]] = list \
      list[#list + 1] = REMOVED \
      list[#list + 1] = entry[2] \
    end \
  elseif answer == 0 and field('taken:' .. key) then \
    redis.pcall('HSET', reg, 'taken:' .. key, due) \
    answer = 1 \
  elseif answer == 0 and ARGV[i + 2] == '' and not field('member:' .. key) then \
    answer = 3 \
  end \
  if answer == 0 then missing[key] = due end \
  out[#out + 1] = answer \
end \
for set, list in pairs(adds) do \
  redis.call('ZADD', set, unpack(list)) \
  clear(set) \
end \
local proof = proves() \
if proof == 0 then \
  for key, due in pairs(missing) do redis.pcall('HSET', reg, 'taken:' .. key, due) end \
end \
return {proof, lost(), out}";

/// Notes that entries which were taken for one arming of their tasks, or were missing, are taken for another. After the first
/// arguments: for each the due times of both in milliseconds (the first is an empty text if it was missing), and the three of
/// `places`. An entry that was written since is not taken.
pub(super) const RETAKE: &str = "\
for i = 4, #ARGV, 5 do \
  local key, _, entries = places(i + 2) \
  if (field('taken:' .. key) or '') == ARGV[i] and #entries == 0 then redis.call('HSET', reg, 'taken:' .. key, ARGV[i + 1]) end \
end \
return 1";

/// Returns 1 if a missing entry was removed by a program, 0 if it may have been lost, and -1 while a daemon with other
/// settings uses the register; and `lost()`.
pub(super) const PROOF: &str = "\
if proves() == 1 then return {1, lost()} end \
return {field('rival') and -1 or 0, lost()}";

/// Holds the register for the scope of the caller. After the first arguments: a new nonce, and for how many milliseconds
/// a daemon counts as present after its last call.
///
/// Two scopes are never held at the same time. A caller finds another scope whose daemons are present: it takes away the
/// nonce, which voids all marks, and becomes its rival. The scope gets a new nonce when it has no rival any more.
///
/// Returns the nonce, or an empty text while there is a rival; and `lost()`.
pub(super) const HOLD: &str = "\
local time = redis.call('TIME') \
local now = time[1] * 1000 + math.floor(time[2] / 1000) \
local present = tonumber(ARGV[5]) \
local function is_present(name) \
  local at = tonumber(field(name) or '') \
  return at and now - at >= 0 and now - at < present \
end \
local now_text = string.format('%.0f', now) \
local held = field('scope') \
if held and held ~= scope and is_present('seen') then \
  redis.call('HSET', reg, 'rival', now_text) \
  redis.call('HDEL', reg, 'nonce') \
  return {'', ''} \
end \
if held ~= scope then \
  redis.call('HSET', reg, 'scope', scope) \
  redis.call('HDEL', reg, 'nonce', 'rival') \
end \
redis.call('HSET', reg, 'seen', now_text) \
if is_present('rival') then return {'', ''} end \
redis.call('HDEL', reg, 'rival') \
redis.call('HSETNX', reg, 'nonce', ARGV[4]) \
return {field('nonce'), lost()}";

/// Returns the mark of each set, without its prefix. Empty: it has none, or another number of changes than the register.
pub(super) const MARKS: &str = "\
local out = {} \
for k = 1, #KEYS do \
  local mark, counted = '', field('count:' .. KEYS[k]) \
  if counted and score_of(KEYS[k], '#lapsed:count:' .. counted) then \
    local members = redis.pcall('ZRANGEBYSCORE', KEYS[k], 'inf', 'inf', 'LIMIT', 0, 16) \
    for _, member in ipairs(members) do \
      if string.match(member, '^#lapsed:%a+:') and not string.match(member, '^#lapsed:count:') then \
        mark = string.sub(member, 9) \
      end \
    end \
  end \
  out[k] = mark \
end \
return out";

/// Replaces the mark of a set, and begins to count its changes. After the first arguments: the new mark; the mark that must
/// be there, with the right number of changes, or an empty text; and what `lost()` returns from then on, or an empty text if
/// that does not change. Returns 1 if it was written.
pub(super) const MARK: &str = "\
local set, counted = KEYS[1], field('count:' .. KEYS[1]) \
if ARGV[5] ~= '' then \
  if not counted or not score_of(set, '#lapsed:count:' .. counted) or not score_of(set, ARGV[5]) then return 0 end \
end \
if not counted then \
  counted = '1' \
  redis.call('HSET', reg, 'count:' .. set, counted) \
end \
for _, member in ipairs(redis.call('ZRANGEBYSCORE', set, 'inf', 'inf')) do \
  if string.sub(member, 1, 8) == '#lapsed:' then redis.call('ZADD', set, REMOVED, member) end \
end \
clear(set) \
redis.call('ZADD', set, 'inf', ARGV[4], 'inf', '#lapsed:count:' .. counted) \
if ARGV[6] ~= '' then redis.call('HSET', reg, 'lost', ARGV[6]) end \
return 1";

/// Forgets that the sets have lost data at a time, which is given after the first arguments, in milliseconds. Returns 1 if
/// that was the latest loss.
pub(super) const FORGET_LOSS: &str = "\
if lost() ~= ARGV[4] then return 0 end \
return redis.call('HDEL', reg, 'lost')";
