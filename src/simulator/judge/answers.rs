//! What an answer promises.

use lapsed_core::ledger::row::{Row, Status};
use lapsed_core::task::{Envelope, UnixMs};

use super::{Anomaly, Invocation, Judge, brief};
use crate::attempts::class_of;
use crate::plan::{Op, Verb};
use crate::record::{Answer, Call};

impl Judge {
    pub fn answered(&mut self, number: usize, answer: Answer, now: UnixMs) {
        self.ops[number].answered = Some((now, answer.clone()));
        let Invocation { op, at: from, .. } = self.ops[number].clone();
        let has_failed = matches!(answer, Answer::Failed(_));
        let unconfirmed = self.unconfirmed.extract_if(.., |(op, _)| *op == number);
        for (_, text) in unconfirmed.filter(|_| !has_failed).collect::<Vec<_>>() {
            self.accuse(Anomaly::RanOlderArming, text);
        }
        match answer {
            Answer::Armed { row, due } => self.is_armed(number, from, now, (row, due)),
            Answer::AllArmed(armings) => {
                self.looked.batches += 1;
                let armings = armings.into_iter();
                armings.for_each(|arming| self.is_armed(number, from, now, arming));
            }
            Answer::Cancelled | Answer::Cancelling => {
                let was = self.cancelled.get(&self.keys[op.key]);
                if !was.is_some_and(|(_, to)| to.is_none_or(|to| to >= from)) {
                    let text = format!("op {number} was told {answer:?}, and nothing is cancelled");
                    self.accuse(Anomaly::WrongAnswer, text);
                }
            }
            Answer::Written => {
                if !self.writers.contains(&number) && !self.was_so(&op, from, now) {
                    let text = format!("op {number} was told that it is done, and nothing was");
                    self.accuse(Anomaly::AcknowledgedBeforeDurable, text);
                }
            }
            Answer::NothingPending => {
                if let Some(row) = self.pending_since(op.key, from) {
                    let text = format!("op {number} was told that nothing is pending: {row}");
                    self.accuse(Anomaly::WrongAnswer, text);
                }
            }
            Answer::NoneLeft(status) => {
                self.looked.bulk += 1;
                if let Some(row) = self.is_left(&op, status, from) {
                    let text = format!("op {number} was told that it has changed all: {row}");
                    self.accuse(Anomaly::WrongAnswer, text);
                }
            }
            Answer::Payload(payload) => {
                let key = &self.keys[op.key];
                let row = self.rows.values().find(|row| row.key.as_str() == key);
                if let Some(row) = row
                    && self.pending_since(op.key, from).is_some()
                    && Envelope::open(row.contents.payload.clone())
                        .payload
                        .unwrap_or_default()
                        != payload.unwrap_or_default()
                {
                    let text = format!("op {number} read another payload: {}", brief(row));
                    self.accuse(Anomaly::WrongAnswer, text);
                }
            }
            Answer::Other(_) | Answer::Failed(_) => {}
        }
    }

    /// An operation was told that the ledger holds this arming: it did at some time since the operation began.
    fn is_armed(&mut self, number: usize, from: UnixMs, now: UnixMs, arming: (u64, UnixMs)) {
        let times = self.armings.get(&arming).map(Vec::as_slice);
        let mut times = times.unwrap_or_default().iter();
        let was = times.any(|(begin, end)| *begin <= now && end.is_none_or(|end| end >= from));
        if !was {
            let (row, due) = arming;
            let text = format!("op {number} was told that {row}-{} exists", due.0);
            self.accuse(Anomaly::AcknowledgedBeforeDurable, text);
        }
        let (row, due) = arming;
        // A run that is being cancelled still has its arming.
        let ended = self
            .rows
            .get(&row)
            .filter(|row| row.status == Status::Cancelled);
        let cancelled = ended.and_then(|row| self.cancelled.get(row.key.as_str()));
        let is_cancelled = cancelled.is_some_and(|(at, until)| *at < from && until.is_none());
        // An older program does not know what it has deleted.
        if is_cancelled && !matches!(self.ops[number].op.verb, Verb::OldCreate { .. }) {
            let text = format!(
                "op {number} was told that {row}-{} is pending, and it is cancelled",
                due.0
            );
            self.accuse(Anomaly::WrongAnswer, text);
        }
    }

    /// True if the row of its key has the due time already to which an operation between these times would move it.
    fn was_so(&self, op: &Op, from: UnixMs, now: UnixMs) -> bool {
        let Verb::RespExpire { delay } = op.verb else {
            return false;
        };
        // A due time is rounded up to a millisecond.
        let asked = from.plus(delay)..=UnixMs(now.plus(delay).0 + 1);
        let mut rows = self.rows.values();
        rows.any(|row| row.key.as_str() == self.keys[op.key] && asked.contains(&row.end_time))
    }

    /// The row of this key, if it has waited for its due time or a retry since then, without a change.
    fn pending_since(&self, key: usize, since: UnixMs) -> Option<String> {
        let row = self
            .rows
            .values()
            .find(|row| row.key.as_str() == self.keys[key])?;
        self.has_waited(row, since).then(|| brief(row))
    }

    fn has_waited(&self, row: &Row, since: UnixMs) -> bool {
        row.status == Status::Unprocessed
            && !row.deleted
            && row.lease_until < since
            && self
                .since
                .get(&row.id)
                .is_some_and(|changed| *changed < since)
    }

    /// A row of the class of an operation that has been pending or dead since then, without a change.
    fn is_left(&self, op: &Op, status: Status, since: UnixMs) -> Option<String> {
        let class = class_of(&self.keys[op.key]);
        let mut rows = self.rows.values().filter(|row| row.key.class() == class);
        let is_left = |row: &&Row| match status {
            Status::Dead => {
                let changed = self.since.get(&row.id);
                row.status == status && changed.is_some_and(|changed| *changed < since)
            }
            _ => self.has_waited(row, since),
        };
        rows.find(is_left).map(brief)
    }

    /// A worker was told that its report is carried out: its claim must be over.
    pub fn reported(&mut self, call: &Call, now: UnixMs) {
        let Some(row) = self.rows.get(&call.row) else {
            return;
        };
        let is_held = row.status == Status::Unprocessed
            && row.owner.map(|owner| owner.0) == call.owner
            && row.lease_until >= now;
        if is_held {
            let text = format!("a report of {} was accepted: {}", call.id, brief(row));
            self.accuse(Anomaly::AcknowledgedBeforeDurable, text);
        }
    }
}
