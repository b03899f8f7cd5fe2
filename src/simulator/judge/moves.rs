//! Judges two ledgers between which tasks move: each task can start in one of them only, and none is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lapsed_core::ledger::row::{Row, Status};
use lapsed_core::task::UnixMs;

use super::{Anomaly, Looked, Violation, brief, same};
use crate::plan::{Op, Plan, Policy, Verb};
use crate::record::{Actor, Answer, Call, Side};

/// What an operation that has failed may still do is done after this time.
const LATE_AFTER: Duration = Duration::from_secs(20);

/// What a task that was moved has as its result in the ledger that gave it up.
pub const MOVED: &str = r#"{"moved":true}"#;

/// An operation of a producer.
#[derive(Debug)]
struct Request {
    side: Side,
    op: Op,
    at: UnixMs,
    answer: Option<(UnixMs, Answer)>,
    /// When the task was due that it has cancelled.
    cancelled: Option<UnixMs>,
}

/// A start of the program of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Started {
    side: Side,
    due: UnixMs,
    attempt: u16,
    at: UnixMs,
}

#[derive(Debug, Default)]
pub struct MoveJudge {
    keys: Vec<String>,
    rows: BTreeMap<Side, BTreeMap<u64, Row>>,
    requests: Vec<Request>,
    started: BTreeMap<String, BTreeSet<Started>>,
    /// Key, due time and attempt of claims that were given back: the attempt starts again.
    given_back: BTreeSet<(String, UnixMs, u16)>,
    /// Key and due time of tasks that a client has created in one ledger while the other could start them: these are two.
    twice_created: BTreeSet<(String, UnixMs)>,
    pub looked: Looked,
    pub violations: Vec<Violation>,
    pub claims_seen: u64,
    pub writes_seen: u64,
}

impl MoveJudge {
    pub fn new(plan: &Plan) -> Self {
        Self {
            keys: plan.names(),
            ..Self::default()
        }
    }

    fn accuse(&mut self, anomaly: Anomaly, text: String) {
        self.violations.push(Violation { anomaly, text });
    }

    pub fn invoked(&mut self, side: Side, op: Op, at: UnixMs) -> usize {
        self.requests.push(Request {
            side,
            op,
            at,
            answer: None,
            cancelled: None,
        });
        self.requests.len() - 1
    }

    pub fn answered(&mut self, number: usize, answer: Answer, now: UnixMs) {
        let request = &mut self.requests[number];
        if answer == Answer::Cancelled {
            let key = &self.keys[request.op.key];
            let rows = self.rows.get(&request.side).into_iter();
            let row = rows
                .flat_map(BTreeMap::values)
                .find(|row| row.key.as_str() == key);
            request.cancelled = row.map(|row| row.end_time);
        }
        request.answer = Some((now, answer));
    }

    /// Compares the rows of a ledger with those before, and judges each difference. Returns a line for each.
    pub fn wrote(&mut self, side: Side, actor: Actor, now: UnixMs, rows: Vec<Row>) -> Vec<String> {
        self.writes_seen += 1;
        let after: BTreeMap<u64, Row> = rows.into_iter().map(|row| (row.id, row)).collect();
        let before = self.rows.insert(side, after.clone()).unwrap_or_default();
        let mut lines = Vec::new();
        for (id, row) in after {
            let old = before.get(&id);
            if old.is_some_and(|old| same(old, &row)) {
                continue;
            }
            lines.push(format!("{side:?}: {actor:?} writes {}", brief(&row)));
            if let Some(old) = old
                && old.end_time == row.end_time
                && old.attempt > row.attempt
            {
                let attempt = (row.key.to_string(), row.end_time, old.attempt);
                self.given_back.insert(attempt);
            }
            let is_claimed = is_claimed(&row, now) && old.is_none_or(|old| old.owner != row.owner);
            self.claims_seen += u64::from(is_claimed);
            self.looked.moved += u64::from(is_given_up(&row) && !old.is_some_and(is_given_up));
            self.compare(side, actor, &row, is_claimed);
        }
        lines
    }

    /// Compares a row with that of the other ledger.
    fn compare(&mut self, side: Side, actor: Actor, row: &Row, is_claimed: bool) {
        let other = self.rows.get(&side.other());
        let other = other.and_then(|rows| rows.values().find(|other| other.key == row.key));
        let Some(other) = other.filter(|other| other.end_time == row.end_time) else {
            return;
        };
        let arming = (row.key.to_string(), row.end_time);
        if matches!(actor, Actor::Op(_)) && can_start(row) && can_start(other) {
            self.twice_created.insert(arming.clone());
        }
        if self.twice_created.contains(&arming) {
            return;
        }
        let text = format!("{side:?} has {}, the other {}", brief(row), brief(other));
        if can_start(row) && can_start(other) {
            self.accuse(Anomaly::Doubled, format!("can start in both: {text}"));
        } else if is_claimed && has_run(other) {
            self.accuse(Anomaly::Doubled, format!("starts after its end: {text}"));
        }
    }

    pub fn called(&mut self, side: Side, call: &Call, now: UnixMs) {
        let Some(key) = self.key_of(side, call) else {
            let text = format!("{side:?} runs {}, which has no row", call.id);
            return self.accuse(Anomaly::Doubled, text);
        };
        if call.due > now {
            let text = format!("{key} runs at {now:?} before {:?}", call.due);
            self.accuse(Anomaly::Early, text);
        }
        let started = Started {
            side,
            due: call.due,
            attempt: call.attempt,
            at: now,
        };
        let all = self.started.entry(key.clone()).or_default();
        let again = all.iter().find(|other| {
            other.side != side && other.due == started.due && other.attempt == started.attempt
        });
        let again = again.map(|other| format!("{key}: {other:?}, {started:?}"));
        all.insert(started);
        if let Some(text) = again
            && !self.twice_created.contains(&(key.clone(), call.due))
            && !self.given_back.contains(&(key, call.due, call.attempt))
        {
            self.accuse(Anomaly::Doubled, text);
        }
    }

    fn key_of(&self, side: Side, call: &Call) -> Option<String> {
        let row = self.rows.get(&side)?.get(&call.row)?;
        Some(row.key.to_string())
    }

    /// The tasks that are not settled yet.
    pub fn unfinished(&self, now: UnixMs) -> Vec<String> {
        let rows = self.rows.values().flat_map(BTreeMap::values);
        let rows = rows.filter(|row| {
            let is_leased = row.lease_until >= now;
            row.status == Status::Unprocessed && (!row.deleted || is_leased)
        });
        rows.map(brief).collect()
    }

    /// Everything has come to rest: has each task had the fate that its last request asked for?
    pub fn is_over(&mut self, now: UnixMs) {
        for row in self.unfinished(now) {
            self.accuse(Anomaly::Stuck, format!("not settled: {row}"));
        }
        for number in 0..self.keys.len() {
            if let Some((anomaly, text)) = self.wrong(number) {
                self.accuse(anomaly, format!("{}: {text}", self.keys[number]));
            }
        }
    }

    fn wrong(&self, number: usize) -> Option<(Anomaly, String)> {
        let requests = self
            .requests
            .iter()
            .filter(|request| request.is_about(number));
        let requests: Vec<&Request> = requests.collect();
        let (last, others) = requests.split_last()?;
        let (answered, answer) = last.answer.as_ref()?;
        if !others.iter().all(|other| other.is_over_at(last.at)) {
            return None;
        }
        let none = BTreeSet::new();
        let started = self.started.get(&self.keys[number]).unwrap_or(&none);
        match answer {
            // It kept what it found, which is no word on it. The other ledger may have a younger one.
            Answer::Armed { due, .. }
                if last.keeps()
                    && others.iter().any(|other| other.armed_for(*due))
                    && others.iter().any(|other| other.side != last.side) =>
            {
                None
            }
            Answer::Armed { due, .. } => {
                let has_started = started.iter().any(|started| started.due == *due);
                // Claims that are applied late count as crashes.
                let is_poisoned = |row: &Row| {
                    row.key.as_str() == self.keys[number]
                        && row.end_time == *due
                        && row.status == Status::Dead
                        && row.crashes >= 3
                };
                let mut rows = self.rows.values().flat_map(BTreeMap::values);
                let text = format!("armed for {due:?} and never started: {started:?}");
                (!has_started && !rows.any(is_poisoned)).then_some((Anomaly::Lost, text))
            }
            // The other ledger may have a task of this key that is due at another time.
            Answer::Cancelled => {
                let due = last.cancelled?;
                let after = started
                    .iter()
                    .find(|started| started.due == due && started.at > *answered)?;
                let text = format!("cancelled at {answered:?}: {after:?}");
                Some((Anomaly::RanAfterCancel, text))
            }
            _ => None,
        }
    }
}

impl Request {
    fn is_about(&self, key: usize) -> bool {
        match &self.op.verb {
            Verb::CreateMany { keys, .. } => keys.contains(&key),
            _ => self.op.key == key,
        }
    }

    /// True if it leaves a pending task as it is.
    fn keeps(&self) -> bool {
        let Verb::Create { policy, .. } = &self.op.verb else {
            return false;
        };
        *policy == Policy::Keep
    }

    /// True if the answer was that the task is due then.
    fn armed_for(&self, due: UnixMs) -> bool {
        matches!(&self.answer, Some((_, Answer::Armed { due: armed, .. })) if *armed == due)
    }

    /// True if it has no effect from this time on.
    fn is_over_at(&self, at: UnixMs) -> bool {
        match &self.answer {
            Some((_, Answer::Failed(_))) => self.at.plus(LATE_AFTER) < at,
            Some((answered, _)) => *answered < at,
            None => false,
        }
    }
}

/// True if a daemon may claim it, now or at its due time.
fn can_start(row: &Row) -> bool {
    row.status == Status::Unprocessed && !row.deleted && !row.is_held()
}

fn is_claimed(row: &Row, now: UnixMs) -> bool {
    can_start(row) && row.lease_until > now
}

/// True if the other ledger got it.
fn is_given_up(row: &Row) -> bool {
    row.status == Status::Processed && row.result.as_deref() == Some(MOVED)
}

/// True if it has ended here by a run.
fn has_run(row: &Row) -> bool {
    matches!(row.status, Status::Processed | Status::Dead) && !is_given_up(row)
}
