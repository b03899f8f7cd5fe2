//! Entries that programs push into the lists of a wheel, and the rows that daemons write for them.

use lapsed_core::ledger::row::Row;
use lapsed_core::task::UnixMs;
use lapsed_model_redis::Change;
use serde_json::Value;

use super::{Anomaly, Judge, Push, brief};
use crate::keyed::STEP_MS;
use crate::plan::WHEEL;
use crate::record::Actor;

/// How long after the visit of its slot the row of an entry is there, and how late its due time may be.
const ADOPTED_WITHIN_MS: i64 = 3_000;

/// True for the task of an entry.
pub(super) fn is_pushed(row: &Row) -> bool {
    row.key.class() == WHEEL
}

/// True for the task of an entry that waits for its next round.
pub(super) fn waits_for_a_round(row: &Row, now: UnixMs) -> bool {
    is_pushed(row) && row.end_time.0 > now.0 + 600_000
}

impl Judge {
    /// Notes an entry that a program has pushed.
    pub(super) fn pushed(&mut self, change: &Change) {
        let words = change.command.as_deref();
        let Some([b"RPUSH", list, entry]) = words.map(|words| {
            let mut words = words.iter().map(Vec::as_slice);
            std::array::from_fn(|_| words.next().unwrap_or_default())
        }) else {
            return;
        };
        let slot = std::str::from_utf8(list).ok();
        let slot = slot.and_then(|list| list.strip_prefix("task_")?.parse::<i64>().ok());
        let entry: Option<Value> = serde_json::from_slice(entry).ok();
        let entry = entry.unwrap_or_default();
        let (op, rounds) = (entry["params"]["op"].as_u64(), entry["cycle_num"].as_i64());
        if let (Some(slot), Some(op), Some(rounds)) = (slot, op, rounds) {
            // The clock of Redis may be ahead, and no entry is pushed shortly after a visit.
            let second = (change.at.0 - STEP_MS) / 1_000;
            let visited = second + (slot - second).rem_euclid(self.slots);
            let due = visited + rounds * self.slots;
            self.looked.rounds += u64::from(rounds > 0);
            self.pushes.insert(
                op,
                Push {
                    at: change.at,
                    visited: UnixMs(visited * 1_000),
                    due: UnixMs(due * 1_000),
                    row: None,
                    is_judged: false,
                },
            );
        }
    }

    /// A row of this class is of one entry, and that entry has no other row.
    pub(super) fn is_of_a_push(&mut self, actor: Actor, now: UnixMs, row: &Row) {
        let payload = row.contents.payload.as_deref().unwrap_or_default();
        let payload: Value = serde_json::from_str(payload).unwrap_or_default();
        let push = payload["op"]
            .as_u64()
            .and_then(|op| self.pushes.get_mut(&op));
        let text = format!(
            "{actor:?} at {} inserted {} for {push:?}",
            now.0,
            brief(row)
        );
        let Some(push) = push else {
            return self.accuse(Anomaly::ChangedWithoutCause, text);
        };
        let before = push.row.replace(row.id);
        let late_ms = row.end_time.0 - push.due.0;
        let is_disturbed = self.rest_from > push.at;
        if before.is_some_and(|before| before != row.id) {
            self.accuse(Anomaly::Doubled, text);
        } else if late_ms < 0 {
            self.accuse(Anomaly::Early, text);
        } else if late_ms > ADOPTED_WITHIN_MS && !is_disturbed {
            self.accuse(Anomaly::Late, text);
        }
    }

    /// Looks whether entries have become rows, where all was well since they were pushed.
    pub(super) fn adopted_pushes(&mut self, now: UnixMs) {
        let rest_from = self.rest_from;
        let mut lost = Vec::new();
        for (op, push) in &mut self.pushes {
            if push.is_judged || push.visited.0 + ADOPTED_WITHIN_MS > now.0 {
                continue;
            }
            push.is_judged = true;
            if rest_from <= push.at {
                self.looked.pushes += 1;
                if push.row.is_none() {
                    lost.push(format!("at {} op {op}: {push:?}", now.0));
                }
            }
        }
        lost.into_iter()
            .for_each(|text| self.accuse(Anomaly::Lost, text));
    }
}
