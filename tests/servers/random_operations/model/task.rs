//! What must become of one task: pure. It knows what a program and a client have done to its key and its row, and what that
//! means by the README. Where that promises nothing, [`Task::effect`] answers `None` and the operation is left out.

use super::disturbances::{Disturbances, Harm};

/// No operation comes nearer to a due time that is ahead.
const BEFORE_DUE: i64 = 2_500;

/// Two due times that are nearer to each other may be taken for one.
const SAME: i64 = 300;

/// Two that are nearer may be taken for one by what has merely found the key.
const SAME_FOUND: i64 = 3_000;

/// What somebody does. Times are milliseconds from now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// `lapsed schedule`.
    Create(i64),
    /// `lapsed reschedule`.
    Reschedule(i64),
    /// `lapsed cancel`.
    Cancel,
    /// `lapsed run`.
    RunNow,
    /// `SETEX` or `PSETEX`.
    Arm(i64),
    /// `EXPIRE` or `PEXPIRE`.
    Expire(i64),
    /// `PERSIST`.
    Persist,
    /// `DEL`.
    Delete,
    /// `SET` without an expiry.
    Set,
}

/// What the table has of the task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Row {
    None,
    /// Due no sooner than that. `own`: it did not come from a key.
    Pending {
        due: i64,
        own: bool,
    },
    Done,
    Cancelled,
}

/// What Redis has of it. Without a time to expire it stays for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Key {
    Gone,
    /// Armed by the client for `meant`.
    Ours {
        meant: i64,
        expires: Option<i64>,
    },
    Foreign {
        expires: Option<i64>,
    },
    /// Gone or armed once more, who knows.
    Doubtful,
}

/// What an operation does to the row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    Nothing,
    /// It is pending, due at another time. `own` is what it becomes, if it changes.
    Arm {
        own: Option<bool>,
    },
    Cancel,
}

/// What an operation does, and what it is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effect {
    pub change: Change,
    key: Key,
    /// What Redis answers, if the operation is a command that says something.
    pub answer: Option<i64>,
    /// The time without a daemon in which nobody heard it.
    unheard: Option<usize>,
}

/// One due time that the task was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arming {
    /// When it falls due: between these.
    pub earliest: i64,
    pub latest: i64,
    /// Moved or cancelled before it was due: it never runs.
    pub ended: bool,
}

#[derive(Debug, Clone)]
pub struct Task {
    pub row: Row,
    /// When something was last said about it, at the earliest.
    row_since: i64,
    key: Key,
    key_since: i64,
    pub armings: Vec<Arming>,
    /// What nobody heard, and the due time before which a daemon has to be there.
    unheard: Vec<(usize, i64)>,
    /// An operation took so long that nothing is promised.
    pub unsure: bool,
}

impl Task {
    pub fn new() -> Self {
        Self {
            row: Row::None,
            row_since: 0,
            key: Key::Gone,
            key_since: 0,
            armings: Vec::new(),
            unheard: Vec::new(),
            unsure: false,
        }
    }

    /// What an operation at this moment does, or `None` where nothing is promised.
    pub fn effect(&self, op: Op, at: i64, disturbances: &Disturbances) -> Option<Effect> {
        if let Row::Pending { due, .. } = self.row
            && due < at + BEFORE_DUE
        {
            return None;
        }
        let is_settled = |disturbance: usize| disturbances.is_long_over(disturbance, at);
        if !self
            .unheard
            .iter()
            .all(|(disturbance, _)| is_settled(*disturbance))
        {
            return None;
        }
        let key = self.key_at(at, disturbances);
        let has_redis = disturbances.is_clear(at, &[Harm::Redis]);
        let pending = match self.row {
            Row::Pending { due, own } => Some((due, own)),
            _ => None,
        };
        let effect = |change, key| Effect {
            change,
            key,
            answer: None,
            unheard: None,
        };
        let nothing = effect(Change::Nothing, key.unwrap_or(Key::Doubtful));
        // What the client's arming or deletion of the key comes to.
        let after = |key| match has_redis {
            true => key,
            false => Key::Doubtful,
        };
        let armed_by_client = |in_ms: i64| {
            let due = at + in_ms;
            let ours = Key::Ours {
                meant: due,
                expires: Some(due),
            };
            effect(Change::Arm { own: Some(true) }, after(ours))
        };
        match op {
            Op::Create(in_ms) => return Some(armed_by_client(in_ms)),
            Op::Reschedule(in_ms) if pending.is_some() => return Some(armed_by_client(in_ms)),
            Op::RunNow if pending.is_some() => {
                // The key is armed for a moment, and may be dropped some time later.
                let change = Change::Arm { own: Some(true) };
                return Some(effect(change, Key::Doubtful));
            }
            Op::Cancel if pending.is_some() => {
                // An audit that has read the row just before may arm the key once more.
                return Some(effect(Change::Cancel, Key::Doubtful));
            }
            // The key is deleted once more.
            Op::Cancel if self.row == Row::Cancelled => {
                return Some(effect(Change::Nothing, after(Key::Gone)));
            }
            Op::Reschedule(_) | Op::Cancel | Op::RunNow => return Some(nothing),
            _ if !has_redis => return None,
            _ => {}
        }
        let hears = disturbances.is_clear(at, &[Harm::Redis, Harm::Keys, Harm::Daemons]);
        let foreign = |in_ms: i64| Key::Foreign {
            expires: Some(at + in_ms),
        };
        match op {
            Op::Set => Some(effect(Change::Nothing, Key::Foreign { expires: None })),
            Op::Arm(in_ms) if hears => {
                let is_other = pending.is_none_or(|(due, _)| (due - at - in_ms).abs() > SAME);
                let armed = effect(Change::Arm { own: Some(false) }, foreign(in_ms));
                is_other.then_some(armed)
            }
            Op::Arm(in_ms) => {
                // Not heard, but found by the next daemon.
                let (disturbance, until) = disturbances.without_daemons(at)?;
                let in_time = |due: i64| due > until + SAME_FOUND;
                let new = at + in_ms;
                let change = match self.row {
                    Row::None => Change::Arm { own: Some(false) },
                    _ if disturbances.restarted_between(self.row_since, at) => return None,
                    Row::Pending { due, own } if in_time(due) && (due - new).abs() > SAME_FOUND => {
                        match own {
                            true => Change::Nothing,
                            false => Change::Arm { own: Some(false) },
                        }
                    }
                    Row::Pending { .. } | Row::Done | Row::Cancelled => return None,
                };
                let armed = Effect {
                    unheard: Some(disturbance),
                    ..effect(change, foreign(in_ms))
                };
                in_time(new).then_some(armed)
            }
            _ if !hears || key == Some(Key::Doubtful) => None,
            Op::Expire(in_ms) => {
                let new = at + in_ms;
                let effect = match key? {
                    Key::Ours { meant, .. } => {
                        let ours = Key::Ours {
                            meant,
                            expires: Some(new),
                        };
                        // A later expiry than it was armed for means nothing.
                        let change = match pending {
                            Some((due, _)) if (due - new).abs() <= SAME => return None,
                            Some(_) if new < meant - SAME => Change::Arm { own: None },
                            _ if new > meant + SAME_FOUND => Change::Nothing,
                            None => Change::Nothing,
                            Some(_) => return None,
                        };
                        effect(change, ours)
                    }
                    Key::Foreign { .. } => {
                        if pending.is_some_and(|(due, _)| (due - new).abs() <= SAME) {
                            return None;
                        }
                        effect(Change::Arm { own: Some(false) }, foreign(in_ms))
                    }
                    Key::Gone | Key::Doubtful => nothing,
                };
                let answer = Some(i64::from(key? != Key::Gone));
                Some(Effect { answer, ..effect })
            }
            Op::Persist | Op::Delete => {
                let deletes = op == Op::Delete;
                let (is_heard, after) = match key? {
                    Key::Gone | Key::Doubtful => (false, Key::Gone),
                    // The next audit may arm it once more.
                    _ if deletes && matches!(pending, Some((_, true))) => (true, Key::Doubtful),
                    _ if deletes => (true, Key::Gone),
                    Key::Ours { meant, expires } => (
                        expires.is_some(),
                        Key::Ours {
                            meant,
                            expires: None,
                        },
                    ),
                    Key::Foreign { expires } => (expires.is_some(), Key::Foreign { expires: None }),
                };
                let change = match pending {
                    Some((_, false)) if is_heard => Change::Cancel,
                    _ => Change::Nothing,
                };
                let answer = Some(i64::from(is_heard));
                Some(Effect {
                    answer,
                    ..effect(change, after)
                })
            }
            _ => None,
        }
    }

    /// It happened between `before` and `after`. `due`: the due time, where an answer said it.
    pub fn apply(&mut self, effect: Effect, op: Op, before: i64, after: i64, due: Option<i64>) {
        if let Row::Pending { due, .. } = self.row
            && after > due - BEFORE_DUE / 2
        {
            self.unsure = true;
        }
        let in_ms = match op {
            Op::Create(ms) | Op::Reschedule(ms) | Op::Arm(ms) | Op::Expire(ms) => ms,
            _ => 0,
        };
        let earliest = due.unwrap_or(before + in_ms);
        if let Some(disturbance) = effect.unheard {
            let old = match self.row {
                Row::Pending { due, .. } => due,
                _ => earliest,
            };
            self.unheard.push((disturbance, earliest.min(old)));
        }
        self.key = match effect.key {
            Key::Ours { meant, expires } if matches!(op, Op::Create(_) | Op::Reschedule(_)) => {
                Key::Ours {
                    meant: due.unwrap_or(meant),
                    expires: due.or(expires),
                }
            }
            key => key,
        };
        self.key_since = after;
        if effect.change == Change::Nothing {
            return;
        }
        if let (Row::Pending { .. }, Some(last)) = (self.row, self.armings.last_mut()) {
            last.ended = true;
        }
        let was_own = matches!(self.row, Row::Pending { own: true, .. });
        self.row_since = before;
        self.row = match effect.change {
            Change::Arm { own } => {
                self.armings.push(Arming {
                    earliest,
                    latest: due.unwrap_or(after + in_ms),
                    ended: false,
                });
                Row::Pending {
                    due: earliest,
                    own: own.unwrap_or(was_own),
                }
            }
            _ => Row::Cancelled,
        };
    }

    /// How often it has to run, if nothing else is done to it.
    pub fn runs(&self) -> impl Iterator<Item = &Arming> {
        self.armings.iter().filter(|arming| !arming.ended)
    }

    /// Whether a daemon came in time for everything that was armed without one.
    pub fn was_found_in_time(&self, disturbances: &Disturbances) -> bool {
        let in_time =
            |(disturbance, due): &(usize, i64)| disturbances.is_long_over(*disturbance, *due);
        self.unheard.iter().all(in_time)
    }

    /// What Redis has now; `None` where that may just be changing.
    fn key_at(&self, at: i64, disturbances: &Disturbances) -> Option<Key> {
        const EXPIRING: i64 = 500;
        if disturbances.lost_keys_between(self.key_since, at) {
            return Some(Key::Doubtful);
        }
        let expires = match self.key {
            Key::Ours { expires, .. } | Key::Foreign { expires } => expires,
            Key::Gone | Key::Doubtful => None,
        };
        match expires.map(|expires| expires - at) {
            Some(left) if left < -EXPIRING => Some(Key::Gone),
            Some(left) if left <= EXPIRING => None,
            _ => Some(self.key),
        }
    }
}
