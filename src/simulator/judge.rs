//! Judges a history: which change of a row is allowed to whom, and what an answer promises.
//!
//! It sees every committed transaction as the rows before and after it, and who wrote it. Its rules are written from the
//! protocol, not from the code.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use lapsed_core::ledger::Owner;
use lapsed_core::ledger::row::{Row, Status};
use lapsed_core::task::UnixMs;
use lapsed_model_redis::{Change, ModelRedis};

use crate::plan::{FaultKind, Op, Verb};
use crate::record::{Actor, Answer, Call, End};

/// What must not happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Anomaly {
    Lost,
    Early,
    Late,
    Doubled,
    RanAfterCancel,
    RanOlderArming,
    AcknowledgedBeforeDurable,
    FencedResultApplied,
    WrongAnswer,
    Stuck,
    ChangedWithoutCause,
    LeaseLostWithoutCause,
    WrongPayload,
    NotEmpty,
}

#[derive(Debug, Clone)]
pub struct Violation {
    pub anomaly: Anomaly,
    pub text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.anomaly, self.text)
    }
}

#[derive(Debug, Clone)]
struct Invocation {
    op: Op,
    at: UnixMs,
}

/// From when, and until when.
type Span = (UnixMs, Option<UnixMs>);

/// A change of a key in Redis.
#[derive(Debug)]
struct Touch {
    at: UnixMs,
    due: Option<UnixMs>,
    what: &'static str,
}

/// What the ledger should have of a key, some seconds after a program has changed it in Redis.
#[derive(Debug)]
struct Expected {
    key: String,
    at: UnixMs,
    /// `None`: the task is cancelled.
    due: Option<UnixMs>,
}

/// How far a due time that was read from a key may be off: the clocks of Redis and of the ledger differ by a fault.
const TOLERANCE_MS: u64 = 5_000;

/// A claim of a row.
#[derive(Debug, Clone)]
struct Claim {
    number: u64,
    by: Actor,
    row: u64,
    due: UnixMs,
    attempt: u16,
    payload: Option<String>,
    is_called: bool,
    end: Option<End>,
    /// True if something has disturbed its process since.
    is_disturbed: bool,
    /// True if its process may have died since.
    may_crash: bool,
    lease_until: UnixMs,
}

#[derive(Debug, Default)]
pub struct Judge {
    keys: Vec<String>,
    redis: Option<Arc<ModelRedis>>,
    /// What programs and clients have done to each key in Redis, the latest last.
    touched: BTreeMap<String, Vec<Touch>>,
    expected: Vec<Expected>,
    pub expectations: u64,
    rows: BTreeMap<u64, Row>,
    /// When each row was last changed.
    since: BTreeMap<u64, UnixMs>,
    /// No demand on lateness before this time: something is or was wrong.
    rest_from: UnixMs,
    /// When each row had each due time, the latest last.
    armings: BTreeMap<(u64, UnixMs), Vec<Span>>,
    /// When each key was last cancelled, and until when.
    cancelled: BTreeMap<String, Span>,
    claims: BTreeMap<[u8; 16], Claim>,
    ops: Vec<Invocation>,
    pub violations: Vec<Violation>,
    pub claims_seen: u64,
    pub writes_seen: u64,
}

impl Judge {
    pub fn new(keys: Vec<String>, redis: Option<Arc<ModelRedis>>) -> Self {
        Self {
            keys,
            redis,
            ..Self::default()
        }
    }

    pub fn accuse(&mut self, anomaly: Anomaly, text: impl Into<String>) {
        let text = text.into();
        self.violations.push(Violation { anomaly, text });
    }

    pub fn invoked(&mut self, op: Op, at: UnixMs) -> usize {
        self.ops.push(Invocation { op, at });
        self.ops.len() - 1
    }

    /// Something has disturbed this process: what it has claimed may be lost to it.
    pub fn disturbed(&mut self, actor: Actor, kind: FaultKind) {
        for claim in self.claims.values_mut().filter(|claim| claim.by == actor) {
            claim.is_disturbed = true;
            claim.may_crash |= kind.may_crash();
        }
    }

    /// Demands nothing on lateness before this time.
    pub fn unrest(&mut self, until: UnixMs) {
        self.rest_from = self.rest_from.max(until);
    }

    /// Looks for rows that should have started by now, if all has been well for long enough.
    pub fn patrol(&mut self, now: UnixMs, has_slots: bool, is_paused: impl Fn(&str) -> bool) {
        self.adopted(now);
        if !has_slots || now < self.rest_from {
            return;
        }
        for row in self.overdue(now, is_paused) {
            let text = format!("at {} not started: {row}", now.0);
            self.accuse(Anomaly::Late, text);
        }
    }

    /// Compares the rows with those before, and judges each difference. Returns a line for each.
    pub fn wrote(&mut self, actor: Actor, now: UnixMs, rows: Vec<Row>) -> Vec<String> {
        self.writes_seen += 1;
        self.read_redis();
        let after: BTreeMap<u64, Row> = rows.into_iter().map(|row| (row.id, row)).collect();
        let before = std::mem::replace(&mut self.rows, after.clone());
        let mut lines = Vec::new();
        let ids: std::collections::BTreeSet<u64> =
            before.keys().chain(after.keys()).copied().collect();
        for id in ids {
            if before
                .get(&id)
                .zip(after.get(&id))
                .is_none_or(|(old, new)| !same(old, new))
            {
                self.since.insert(id, now);
            }
            match (before.get(&id), after.get(&id)) {
                (None, Some(row)) => {
                    lines.push(format!("{actor:?} inserts {}", brief(row)));
                    self.armed(row, now);
                    match actor {
                        Actor::Daemon { .. } => self.is_of_a_key(actor, now, row, "inserted"),
                        _ => {
                            self.is_for_key(actor, row, "inserted");
                            self.is_due_of(actor, row);
                        }
                    }
                }
                (Some(old), Some(new)) if !same(old, new) => {
                    lines.push(format!("{actor:?} writes {} -> {}", brief(old), brief(new)));
                    self.changed(actor, now, old, new);
                }
                (Some(old), None) => {
                    lines.push(format!("{actor:?} deletes {}", brief(old)));
                    self.disarmed(old, now);
                    let allowed = old.status == Status::Dead && matches!(actor, Actor::Op(_));
                    if !allowed {
                        let text = format!("{actor:?} deleted {}", brief(old));
                        self.accuse(Anomaly::Lost, text);
                    }
                }
                _ => {}
            }
        }
        lines
    }

    fn changed(&mut self, actor: Actor, now: UnixMs, old: &Row, new: &Row) {
        if old.end_time != new.end_time {
            self.disarmed(old, now);
            self.armed(new, now);
            match actor {
                Actor::Op(_) => {
                    self.is_for_key(actor, new, "moved");
                    self.is_due_of(actor, new);
                }
                _ => self.is_of_a_key(actor, now, new, "moved"),
            }
        }
        let is_cancelled = |row: &Row| row.deleted || row.status == Status::Cancelled;
        if is_cancelled(new) && !is_cancelled(old) {
            self.cancelled.insert(new.key.to_string(), (now, None));
        } else if !is_cancelled(new)
            && let Some((_, to)) = self.cancelled.get_mut(new.key.as_str())
        {
            *to = to.or(Some(now));
        }
        if old.owner != new.owner && new.lease_until >= now && new.owner.is_some() {
            self.claimed(actor, now, old, new);
        } else if old.owner == new.owner && new.lease_until > old.lease_until {
            self.renewed(actor, now, old, new);
        } else if old.lease_until > now && new.lease_until < now {
            self.released(actor, old, new);
        }
        if old.status != new.status {
            self.ended_in_ledger(actor, now, old, new);
        }
        if !old.deleted && new.deleted {
            match actor {
                Actor::Op(number) => self.is_cancel(number, new),
                _ if new.status == Status::Cancelled || self.was_removed(old) => {}
                _ => self.without_cause(actor, old, new, "deleted"),
            }
        }
    }

    fn claimed(&mut self, actor: Actor, now: UnixMs, old: &Row, new: &Row) {
        self.claims_seen += 1;
        let what = format!("{actor:?} claimed {} at {}", brief(old), now.0);
        if old.end_time > now || due_at(old) > now {
            self.accuse(Anomaly::Early, &what);
        }
        if old.status != Status::Unprocessed {
            let anomaly = match old.status {
                Status::Cancelled => Anomaly::RanAfterCancel,
                _ => Anomaly::Doubled,
            };
            self.accuse(anomaly, &what);
        } else if old.deleted {
            self.accuse(Anomaly::RanAfterCancel, &what);
        }
        if old.lease_until >= now {
            self.accuse(Anomaly::Doubled, format!("{what}, which is leased"));
        }
        if new.end_time != old.end_time || new.run_end != new.end_time {
            self.accuse(Anomaly::RanOlderArming, &what);
        }
        if !matches!(actor, Actor::Daemon { .. }) {
            self.accuse(Anomaly::ChangedWithoutCause, &what);
        }
        if new.crashes > old.crashes && old.run_end == old.end_time {
            let holder = old
                .owner
                .and_then(|owner| self.claims.get(&key_of(owner, old.id)));
            if let Some(holder) = holder
                && !holder.may_crash
            {
                let text = format!(
                    "{what}: a crash is counted, and nothing disturbed {:?}",
                    holder.by
                );
                self.accuse(Anomaly::LeaseLostWithoutCause, text);
            }
        }
        let owner = new.owner.unwrap_or(Owner([0; 16]));
        self.claims.insert(
            key_of(owner, new.id),
            Claim {
                number: self.claims_seen,
                by: actor,
                row: new.id,
                due: new.end_time,
                attempt: new.attempt,
                payload: new.contents.payload.clone(),
                is_called: false,
                end: None,
                is_disturbed: false,
                may_crash: false,
                lease_until: new.lease_until,
            },
        );
    }

    fn renewed(&mut self, actor: Actor, now: UnixMs, old: &Row, new: &Row) {
        let text = format!("{actor:?} renewed {} at {}", brief(old), now.0);
        let claim = old
            .owner
            .and_then(|owner| self.claims.get_mut(&key_of(owner, old.id)));
        let by = claim.map(|claim| {
            claim.lease_until = new.lease_until;
            claim.by
        });
        if old.lease_until < now {
            self.accuse(Anomaly::Doubled, format!("{text}: its lease was over"));
        }
        if by != Some(actor) {
            self.accuse(Anomaly::FencedResultApplied, text);
        }
    }

    fn released(&mut self, actor: Actor, old: &Row, new: &Row) {
        let claim = old
            .owner
            .and_then(|owner| self.claims.get(&key_of(owner, old.id)));
        let Some(claim) = claim else { return };
        let is_dead = claim.is_disturbed;
        if claim.by != actor && !is_dead && !matches!(actor, Actor::Op(_)) {
            let text = format!(
                "{actor:?} ended the lease of {:?}: {} -> {}",
                claim.by,
                brief(old),
                brief(new)
            );
            self.accuse(Anomaly::Doubled, text);
        }
    }

    fn ended_in_ledger(&mut self, actor: Actor, now: UnixMs, old: &Row, new: &Row) {
        let what = format!("{actor:?} at {}: {} -> {}", now.0, brief(old), brief(new));
        let claim = old
            .owner
            .and_then(|owner| self.claims.get(&key_of(owner, old.id)).cloned());
        match (new.status, actor) {
            (Status::Processed, Actor::Daemon { .. }) => {
                let fits = claim
                    .as_ref()
                    .is_some_and(|claim| claim.by == actor && claim.due == old.end_time);
                if !fits {
                    self.accuse(Anomaly::FencedResultApplied, what);
                } else if claim.and_then(|claim| claim.end) != Some(End::Succeeded) {
                    self.accuse(Anomaly::Lost, format!("{what}: done, and did not succeed"));
                }
            }
            (Status::Dead, Actor::Daemon { .. }) => {
                let end = claim
                    .filter(|claim| claim.due == old.end_time)
                    .and_then(|claim| claim.end);
                if end == Some(End::Succeeded) {
                    self.accuse(Anomaly::Lost, format!("{what}: dead, and had succeeded"));
                }
                if end.is_none() && new.crashes < 3 {
                    self.accuse(Anomaly::Lost, format!("{what}: dead without a run"));
                }
            }
            (Status::Cancelled, Actor::Daemon { .. }) if old.deleted => {}
            (Status::Cancelled, Actor::Daemon { .. }) if self.was_removed(old) => {}
            (Status::Unprocessed, Actor::Daemon { .. }) => {
                self.is_of_a_key(actor, now, new, "made pending");
            }
            (Status::Cancelled, Actor::Op(number)) => {
                self.is_cancel(number, new);
            }
            (Status::Unprocessed, Actor::Op(_)) => self.is_for_key(actor, new, "made pending"),
            _ => self.accuse(Anomaly::ChangedWithoutCause, what),
        }
    }

    /// A change by an operation is of its key.
    fn is_for_key(&mut self, actor: Actor, row: &Row, what: &str) {
        let is_meant = match actor {
            Actor::Op(number) => self.is_meant(number, row),
            _ => false,
        };
        if !is_meant {
            let text = format!("{actor:?} {what} {}", brief(row));
            self.accuse(Anomaly::ChangedWithoutCause, text);
        }
    }

    fn is_meant(&self, number: usize, row: &Row) -> bool {
        let op = &self.ops[number].op;
        let keys: Vec<usize> = match &op.verb {
            Verb::CreateMany { keys, .. } => keys.clone(),
            _ => vec![op.key],
        };
        keys.iter().any(|key| self.keys[*key] == row.key.as_str())
    }

    /// The due time that an operation wrote is what it asked for: exact, or counted from some time since it began.
    fn is_due_of(&mut self, actor: Actor, row: &Row) {
        let Actor::Op(number) = actor else { return };
        let Invocation { op, at, .. } = &self.ops[number];
        let delay = match &op.verb {
            Verb::Create { delay, .. }
            | Verb::CreateMany { delay, .. }
            | Verb::Reschedule { delay }
            | Verb::SqlCreate { delay } => *delay,
            Verb::RunNow | Verb::Redrive => std::time::Duration::ZERO,
            _ => {
                return self.accuse(
                    Anomaly::ChangedWithoutCause,
                    format!("op {number} moved {}", brief(row)),
                );
            }
        };
        let asked = at.plus(delay);
        // A relative time counts from the estimate of the process, which may be off by its faults.
        if row.end_time.0.abs_diff(asked.0) > 25_000 {
            let text = format!("op {number} asked for {}, wrote {}", asked.0, brief(row));
            self.accuse(Anomaly::WrongAnswer, text);
        }
    }

    /// Reads what has happened in Redis since.
    fn read_redis(&mut self) {
        let Some(redis) = &self.redis else { return };
        for change in redis.take_history() {
            let key = String::from_utf8_lossy(&change.key).into_owned();
            if let Some(expected) = self.expected_of(&key, &change) {
                self.expected.push(expected);
            }
            self.touched.entry(key).or_default().push(Touch {
                at: change.at,
                due: change.due,
                what: change.what,
            });
        }
    }

    /// What a command of a program promises for the row of its key.
    fn expected_of(&self, key: &str, change: &Change) -> Option<Expected> {
        let command = change.command.as_ref()?.first()?;
        let touched = self.touched.get(key).and_then(|touched| touched.last());
        let due = match (&command[..], change.what) {
            (b"PSETEX", "expire") => Some(change.due?),
            // Only a deletion of a key that a program has armed, some time before, cancels its task.
            (b"DEL", "del") if self.is_foreign(key) => {
                let touched = touched?;
                let is_old = touched.at.0 + 3_000 < change.at.0;
                (is_old && touched.due?.0 > change.at.0 + 5_000).then_some(())?;
                None
            }
            _ => return None,
        };
        let (key, at) = (key.to_owned(), change.at);
        Some(Expected { key, at, due })
    }

    /// True if a program has armed the key, by the one operation on it for some time.
    fn is_foreign(&self, key: &str) -> bool {
        let named = self.ops.iter().rev().filter(|invocation| {
            self.keys[invocation.op.key] == key
                || matches!(invocation.op.verb, Verb::CreateMany { .. })
        });
        // The latest is the deletion itself.
        let before = named.map(|invocation| &invocation.op.verb).nth(1);
        matches!(before, Some(Verb::KeySet { .. }))
    }

    /// Looks whether what programs did in Redis has come to the ledger, where all was well and nothing else was done to the
    /// key.
    fn adopted(&mut self, now: UnixMs) {
        self.read_redis();
        let is_due = |expected: &Expected| expected.at.0 + 3_000 <= now.0;
        let (due, later) = std::mem::take(&mut self.expected)
            .into_iter()
            .partition(is_due);
        self.expected = later;
        let due: Vec<Expected> = due;
        for expected in due {
            let Expected { key, at, due } = &expected;
            let others = self.ops.iter().filter(|invocation| {
                let is_near = invocation.at.0 + 4_000 > at.0;
                let is_of_key = self.keys[invocation.op.key] == *key
                    || matches!(invocation.op.verb, Verb::CreateMany { .. });
                is_near && is_of_key
            });
            if self.rest_from > *at || others.count() > 1 {
                continue;
            }
            let row = self.rows.values().find(|row| row.key.as_str() == key);
            let fits = match (row, due) {
                (Some(row), Some(due)) => row.end_time.0.abs_diff(due.0) <= 2_100,
                (Some(row), None) => row.deleted || row.status != Status::Unprocessed,
                (None, due) => due.is_none(),
            };
            self.expectations += 1;
            if !fits {
                let text = format!(
                    "at {}: {expected:?}, and the ledger has {:?}",
                    now.0,
                    row.map(brief)
                );
                self.accuse(Anomaly::Lost, text);
            }
        }
    }

    /// A daemon may write the due time that a key has in Redis, or has had until it expired, and the time of an expiry.
    fn is_of_a_key(&mut self, actor: Actor, now: UnixMs, row: &Row, what: &str) {
        let touched = self.touched.get(row.key.as_str());
        let mut touched = touched.map(Vec::as_slice).unwrap_or_default().iter();
        let is_known = touched.any(|touch| {
            let is_due = touch
                .due
                .is_some_and(|due| due.0.abs_diff(row.end_time.0) <= TOLERANCE_MS);
            let is_expiry =
                matches!(touch.what, "expired" | "forged") && row.end_time.0 <= now.0 + 50;
            is_due || is_expiry && touch.at <= now
        });
        if !is_known {
            let text = format!("{actor:?} {what} {} at {}", brief(row), now.0);
            self.accuse(Anomaly::ChangedWithoutCause, text);
        }
    }

    /// True if the key of a row was removed, or has lost its expiry.
    fn was_removed(&self, row: &Row) -> bool {
        let touched = self.touched.get(row.key.as_str());
        touched.is_some_and(|touched| touched.iter().any(|touch| touch.due.is_none()))
    }

    fn is_cancel(&mut self, number: usize, row: &Row) {
        let is_cancel = matches!(self.ops[number].op.verb, Verb::Cancel | Verb::SqlCancel);
        if !is_cancel || !self.is_meant(number, row) {
            let text = format!("op {number} cancelled {}", brief(row));
            self.accuse(Anomaly::ChangedWithoutCause, text);
        }
    }

    fn without_cause(&mut self, actor: Actor, old: &Row, new: &Row, what: &str) {
        let text = format!("{actor:?} {what} {} -> {}", brief(old), brief(new));
        self.accuse(Anomaly::ChangedWithoutCause, text);
    }

    fn armed(&mut self, row: &Row, now: UnixMs) {
        let times = self.armings.entry((row.id, row.end_time)).or_default();
        times.push((now, None));
    }

    fn disarmed(&mut self, row: &Row, now: UnixMs) {
        if let Some((_, to)) = self
            .armings
            .get_mut(&(row.id, row.end_time))
            .and_then(|times| times.last_mut())
        {
            *to = Some(now);
        }
    }

    pub fn answered(&mut self, number: usize, answer: Answer, now: UnixMs) {
        let Invocation { op, at: from } = self.ops[number].clone();
        match answer {
            Answer::Armed { row, due } => {
                let times = self
                    .armings
                    .get(&(row, due))
                    .map(Vec::as_slice)
                    .unwrap_or_default();
                let was = times
                    .iter()
                    .any(|(begin, end)| *begin <= now && end.is_none_or(|end| end >= from));
                if !was {
                    let text = format!("op {number} was told that {row}-{} exists", due.0);
                    self.accuse(Anomaly::AcknowledgedBeforeDurable, text);
                }
            }
            Answer::Cancelled | Answer::Cancelling => {
                let was = self.cancelled.get(&self.keys[op.key]);
                if !was.is_some_and(|(_, to)| to.is_none_or(|to| to >= from)) {
                    let text = format!("op {number} was told {answer:?}, and nothing is cancelled");
                    self.accuse(Anomaly::WrongAnswer, text);
                }
            }
            Answer::Other(_) | Answer::Failed(_) => {}
        }
    }

    pub fn called(&mut self, actor: Actor, call: &Call, now: UnixMs) {
        let what = format!(
            "{actor:?} ran {} attempt {} at {}",
            call.id, call.attempt, now.0
        );
        let claim = self
            .claims
            .values_mut()
            .filter(|claim| {
                claim.by == actor
                    && claim.row == call.row
                    && claim.due == call.due
                    && claim.attempt == call.attempt
                    && !claim.is_called
            })
            .max_by_key(|claim| claim.number);
        let Some(claim) = claim else {
            return self.accuse(Anomaly::Doubled, format!("{what} without a claim"));
        };
        claim.is_called = true;
        let is_over = claim.lease_until < now && !claim.is_disturbed;
        let is_other = claim.payload != call.payload;
        if is_over {
            self.accuse(Anomaly::Doubled, format!("{what}, after its lease"));
        }
        if is_other {
            self.accuse(Anomaly::WrongPayload, what);
        }
    }

    pub fn ended(&mut self, actor: Actor, call: &Call, end: End) {
        let claim = self
            .claims
            .values_mut()
            .filter(|claim| {
                claim.by == actor
                    && claim.row == call.row
                    && claim.due == call.due
                    && claim.attempt == call.attempt
                    && claim.is_called
                    && claim.end.is_none()
            })
            .max_by_key(|claim| claim.number);
        if let Some(claim) = claim {
            claim.end = Some(end);
        }
    }

    /// Returns the rows that could have started two seconds ago, and have not.
    fn overdue(&self, now: UnixMs, is_paused: impl Fn(&str) -> bool) -> Vec<String> {
        let rows = self.rows.values().filter(|row| {
            let since = self.since.get(&row.id).copied().unwrap_or(now);
            row.status == Status::Unprocessed
                && !row.deleted
                && row.lease_until < now
                && due_at(row).max(since).0 + 2_000 < now.0
                && !is_paused(row.key.as_str())
        });
        rows.map(brief).collect()
    }

    /// Returns the rows that have not ended.
    pub fn unfinished(&self, is_paused: impl Fn(&str) -> bool) -> Vec<String> {
        let rows = self.rows.values();
        let rows = rows.filter(|row| {
            row.status == Status::Unprocessed && !row.deleted && !is_paused(row.key.as_str())
        });
        rows.map(brief).collect()
    }
}

/// A claim statement gives all its rows one token.
fn key_of(owner: Owner, row: u64) -> [u8; 16] {
    let mut key = owner.0;
    for (byte, of_row) in key.iter_mut().zip(row.to_le_bytes()) {
        *byte ^= of_row;
    }
    key
}

fn due_at(row: &Row) -> UnixMs {
    match row.run_end == row.end_time {
        true => row.end_time.max(row.retry_at),
        false => row.end_time,
    }
}

fn same(old: &Row, new: &Row) -> bool {
    brief(old) == brief(new) && old.owner == new.owner && old.contents == new.contents
}

fn brief(row: &Row) -> String {
    format!(
        "{}[{} {:?}{} due {} run_end {} retry {} lease {} attempt {} crashes {}]",
        row.id,
        row.key.as_str(),
        row.status,
        if row.deleted { " deleted" } else { "" },
        row.end_time.0,
        row.run_end.0,
        row.retry_at.0,
        row.lease_until.0,
        row.attempt,
        row.crashes
    )
}
