//! Judges a history: which change of a row is allowed to whom, and what an answer promises.
//!
//! It sees every committed transaction as the rows before and after it, and who wrote it. Its rules are written from the
//! protocol, not from the code.

mod all_series;
mod all_starts;
mod answers;
mod archive;
mod archiving;
mod changes;
mod groups;
mod keys;
mod looked;
mod moves;
mod old_programs;
mod pruning;
mod pushes;
mod rates;
mod restored;
mod series;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use lapsed_core::ledger::Owner;
use lapsed_core::ledger::row::{Row, Status};
use lapsed_core::task::{Envelope, UnixMs};
use lapsed_model_redis::ModelRedis;
use tokio::time::Instant;

pub use self::all_series::AllSeries;
use self::all_starts::Rates;
use self::archive::Archive;
pub use self::looked::Looked;
pub use self::moves::{MOVED, MoveJudge};

use crate::plan::{FaultKind, Op, PULLED, Plan};
use crate::record::{Actor, Answer, Call, End, Tables};

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
    Miscounted,
    NotEmpty,
    TooMany,
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
    /// When it was answered, and what.
    answered: Option<(UnixMs, Answer)>,
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
    /// When the daemons can notice it.
    seen_at: UnixMs,
}

/// An entry that a program has pushed into a list of a wheel.
#[derive(Debug)]
struct Push {
    at: UnixMs,
    /// The next visit of its slot.
    visited: UnixMs,
    /// That visit, and the rounds that it waits then.
    due: UnixMs,
    row: Option<u64>,
    is_judged: bool,
}

/// A key that Redis has, and the restored ledger has not.
#[derive(Debug)]
struct KeyWithoutRow {
    key: String,
    due: UnixMs,
    /// When the ledger was restored.
    at: UnixMs,
}

/// How far a due time that was read from a key may be off: the clocks of Redis and of the ledger differ by a fault.
const TOLERANCE_MS: u64 = 5_000;

/// How long after a freeze a claim may be written whose statement was sent before: the run has as much less time.
const SENT_BEFORE: Duration = Duration::from_millis(50);

/// A claim of a row.
#[derive(Debug, Clone)]
struct Claim {
    number: u64,
    by: Actor,
    owner: [u8; 16],
    row: u64,
    due: UnixMs,
    at: UnixMs,
    attempt: u16,
    envelope: Envelope,
    is_called: bool,
    end: Option<End>,
    /// True if something has disturbed its process since.
    is_disturbed: bool,
    /// True if its process may have died since.
    may_crash: bool,
    /// When the ledger has refused a statement of its process last.
    refused: Option<Instant>,
    /// Length of its lease.
    lease: Duration,
    lease_until: UnixMs,
}

impl Claim {
    /// True if the ledger refused a statement of its process in the second half of its lease. Of one that it refused before,
    /// the process had time to renew its lease, or to settle its run.
    fn was_refused(&self, now: UnixMs) -> bool {
        let over_for = now.since(self.lease_until);
        self.refused
            .is_some_and(|at| at.elapsed() < over_for + self.lease / 2)
    }
}

#[derive(Debug, Default)]
pub struct Judge {
    keys: Vec<String>,
    redis: Option<Arc<ModelRedis>>,
    /// Changes in Redis to be printed; `None` if nothing is printed.
    redis_changes: Option<Vec<String>>,
    /// What programs and clients have done to each key in Redis, the latest last.
    touched: BTreeMap<String, Vec<Touch>>,
    expected: Vec<Expected>,
    without_row: Vec<KeyWithoutRow>,
    /// When a dump of the ledger was restored.
    restored_at: Option<UnixMs>,
    /// Rows that had changed since the dump that was restored: their entries in a set may be gone.
    changed_since_dump: BTreeSet<u64>,
    /// Keys whose rows the restored ledger lacks. An event may have announced such a task before, and is its only trace.
    gone_since_dump: BTreeSet<String>,
    /// Entries in lists of a wheel, by the operation that has pushed them.
    pushes: BTreeMap<u64, Push>,
    /// The operations that have changed a row.
    writers: BTreeSet<usize>,
    /// Which operation last changed each row, and when.
    op_wrote: BTreeMap<u64, (usize, UnixMs)>,
    /// Keys that a daemon believed although an operation has changed the row since, which is not answered yet.
    unconfirmed: Vec<(usize, String)>,
    pub looked: Looked,
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
    /// When each process got processor time again.
    thawed: BTreeMap<Actor, UnixMs>,
    /// Statements of each process whose answers come late or never.
    waiting: BTreeMap<Actor, u32>,
    /// Processes that were asked to stop. They claim tasks until the others have learned that they leave.
    stopping: BTreeSet<Actor>,
    series: AllSeries,
    rates: Rates,
    /// Finished rows are deleted after some time.
    prunes: bool,
    archive: Archive,
    /// When events of keys may be lost.
    unheard: Vec<(UnixMs, UnixMs)>,
    /// Keys whose rows were deleted by retention, and when their tasks had ended.
    pruned: BTreeMap<String, UnixMs>,
    /// Lists of the wheel.
    slots: i64,
    ops: Vec<Invocation>,
    pub violations: Vec<Violation>,
    pub claims_seen: u64,
    pub writes_seen: u64,
}

impl Judge {
    pub fn new(plan: &Plan, redis: Option<Arc<ModelRedis>>, prints: bool) -> Self {
        let mut judge = Self {
            keys: plan.names(),
            redis,
            redis_changes: prints.then(Vec::new),
            rates: Rates::new(plan),
            prunes: plan.prunes,
            archive: Archive::new(plan.archives),
            unheard: Self::unheard_spans(plan),
            slots: plan.slots.into(),
            ..Self::default()
        };
        plan.series
            .iter()
            .for_each(|series| judge.configured(series));
        judge
    }

    pub fn accuse(&mut self, anomaly: Anomaly, text: impl Into<String>) {
        let text = text.into();
        self.violations.push(Violation { anomaly, text });
    }

    pub fn invoked(&mut self, op: Op, at: UnixMs) -> usize {
        self.ops.push(Invocation {
            op,
            at,
            answered: None,
        });
        self.ops.len() - 1
    }

    /// Something has disturbed this process: what it has claimed may be lost to it.
    pub fn disturbed(&mut self, actor: Actor, kind: FaultKind) {
        self.misread_clock(actor, kind);
        if matches!(kind, FaultKind::Stop | FaultKind::ConfigChange) {
            self.stopping.insert(actor);
        }
        for claim in self.claims.values_mut().filter(|claim| claim.by == actor) {
            claim.is_disturbed = true;
            match kind {
                FaultKind::LedgerRefuses => claim.refused = Some(Instant::now()),
                _ => claim.may_crash |= kind.may_crash(),
            }
        }
    }

    /// A statement of this process waits for an answer that comes late or never, and so may all that comes after it.
    pub fn waits(&mut self, actor: Actor) {
        *self.waiting.entry(actor).or_default() += 1;
    }

    pub fn waits_no_more(&mut self, actor: Actor) {
        let waiting = self.waiting.entry(actor).or_default();
        *waiting = waiting.saturating_sub(1);
    }

    /// A frozen process goes on.
    pub fn thawed(&mut self, actor: Actor, now: UnixMs) {
        self.thawed.insert(actor, now);
    }

    /// Demands nothing on lateness before this time.
    pub fn unrest(&mut self, until: UnixMs) {
        self.rest_from = self.rest_from.max(until);
    }

    /// Looks for rows that should have started by now, if all has been well for long enough.
    pub fn patrol(&mut self, now: UnixMs, has_slots: bool, is_paused: impl Fn(&str) -> bool) {
        self.adopted(now);
        self.adopted_after_restore(now);
        self.adopted_pushes(now);
        if !has_slots || now < self.rest_from {
            return;
        }
        for row in self.overdue(now, is_paused) {
            let text = format!("at {} not started: {row}", now.0);
            self.accuse(Anomaly::Late, text);
        }
    }

    /// Compares the rows with those before, and judges each difference. Returns a line for each.
    pub fn wrote(&mut self, actor: Actor, now: UnixMs, tables: Tables) -> Vec<String> {
        self.writes_seen += 1;
        self.read_redis();
        let rows = tables.rows.into_iter();
        let after: BTreeMap<u64, Row> = rows.map(|row| (row.id, row)).collect();
        let mut changes: Vec<(Option<Row>, Option<Row>)> = Vec::new();
        for (id, old) in &self.rows {
            if after.get(id).is_none_or(|new| !same(old, new)) {
                changes.push((Some(old.clone()), after.get(id).cloned()));
            }
        }
        let gone = changes.iter().filter(|(_, new)| new.is_none());
        let gone: Vec<Row> = gone.filter_map(|(old, _)| old.clone()).collect();
        self.archived(actor, now, &tables.archived, &gone);
        let inserted = after.iter().filter(|(id, _)| !self.rows.contains_key(id));
        changes.extend(inserted.map(|(_, row)| (None, Some(row.clone()))));
        self.rows = after;
        let mut lines = Vec::new();
        for (old, new) in changes {
            let id = old.as_ref().or(new.as_ref()).map_or(0, |row| row.id);
            self.since.insert(id, now);
            if let Actor::Op(number) = actor {
                self.writers.insert(number);
                self.op_wrote.insert(id, (number, now));
            }
            match (&old, &new) {
                (None, Some(row)) => {
                    lines.push(format!("{actor:?} inserts {}", brief(row)));
                    self.armed(row, now);
                    match actor {
                        Actor::Daemon { .. } => self.inserted(actor, now, row),
                        _ => {
                            self.is_for_key(actor, row, "inserted");
                            self.is_due_of(actor, row);
                        }
                    }
                }
                (Some(old), Some(new)) => {
                    lines.push(format!("{actor:?} writes {} -> {}", brief(old), brief(new)));
                    self.changed(actor, now, old, new);
                }
                (Some(old), None) => {
                    lines.push(format!("{actor:?} deletes {}", brief(old)));
                    self.disarmed(old, now);
                    self.deleted(actor, now, old);
                }
                (None, None) => {}
            }
        }
        lines
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

    pub fn called(&mut self, actor: Actor, call: &Call, now: UnixMs) {
        let what = format!(
            "{actor:?} ran {} attempt {} at {}",
            call.id, call.attempt, now.0
        );
        let Some(claim) = self.claim_of(actor, call, |claim| !claim.is_called) else {
            return self.accuse(Anomaly::Doubled, format!("{what} without a claim"));
        };
        claim.is_called = true;
        let is_over = claim.lease_until < now && !claim.is_disturbed;
        let is_other = claim.envelope.payload != call.payload;
        let claim = claim.clone();
        self.series.called.insert((call.row, call.due));
        if is_over {
            self.accuse(Anomaly::Doubled, format!("{what}, after its lease"));
        }
        if is_other {
            self.accuse(Anomaly::WrongPayload, &*what);
        }
        self.starts_after_its_group(&claim, &what);
    }

    pub fn ended(&mut self, actor: Actor, call: &Call, end: End) {
        let runs = |claim: &Claim| claim.is_called && claim.end.is_none();
        if let Some(claim) = self.claim_of(actor, call, runs) {
            claim.end = Some(end);
        }
    }

    /// The latest claim of this process that a call may belong to.
    fn claim_of(
        &mut self,
        actor: Actor,
        call: &Call,
        fits: impl Fn(&Claim) -> bool,
    ) -> Option<&mut Claim> {
        let claims = self.claims.values_mut().filter(|claim| {
            claim.by == actor
                && claim.row == call.row
                && claim.due == call.due
                && claim.attempt == call.attempt
                && call.owner.is_none_or(|owner| owner == claim.owner)
                && fits(claim)
        });
        claims.max_by_key(|claim| claim.number)
    }

    /// Returns the rows that could have started two seconds ago, and have not.
    fn overdue(&self, now: UnixMs, is_paused: impl Fn(&str) -> bool) -> Vec<String> {
        let rows = self.rows.values().filter(|row| {
            let since = self.since.get(&row.id).copied().unwrap_or(now);
            row.status == Status::Unprocessed
                && !row.deleted
                && !is_pulled(row)
                && !self.rates.has(row)
                && row.lease_until < now
                && due_at(row).max(since).0 + 2_000 < now.0
                && !is_paused(row.key.as_str())
        });
        rows.map(brief).collect()
    }

    /// Returns the rows that have not ended, and the keys that must become rows. Series go on until they are cancelled.
    pub fn unfinished(&self, now: UnixMs) -> Vec<String> {
        let rows = self.rows.values().filter(|row| {
            let runs = row.lease_until >= now;
            row.status == Status::Unprocessed && (!row.deleted || runs)
        });
        let rows = rows.filter(|row| !pushes::waits_for_a_round(row, now));
        let rows = rows.filter(|row| !self.waits_for_a_dead_one(row));
        let rows = rows.filter(|row| self.series.are_over || !series::is_of_series(row));
        let keys = self.without_row.iter().map(|key| format!("{key:?}"));
        rows.map(brief).chain(keys).collect()
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

/// True if workers take this task.
fn is_pulled(row: &Row) -> bool {
    row.key.class() == PULLED
}

fn due_at(row: &Row) -> UnixMs {
    match row.run_end == row.end_time {
        true => row.end_time.max(row.retry_at),
        false => row.end_time,
    }
}

fn same(old: &Row, new: &Row) -> bool {
    let seen = |row: &Row| {
        (
            (row.status, row.deleted, row.end_time, row.run_end),
            (row.retry_at, row.lease_until, row.attempt, row.crashes),
            row.owner,
        )
    };
    seen(old) == seen(new) && old.contents == new.contents && old.recurrence == new.recurrence
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
