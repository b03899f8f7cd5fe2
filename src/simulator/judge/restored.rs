//! A ledger that was restored from a dump: what was written since counts no more. Keys in Redis do.

use std::collections::{BTreeMap, BTreeSet};

use lapsed_core::ledger::row::{Row, Status};
use lapsed_core::task::{Origin, TaskKey, UnixMs};

use super::all_series::AllSeries;
use super::{Anomaly, Claim, Judge, KeyWithoutRow, TOLERANCE_MS, same};
use crate::record::Tables;

impl Judge {
    /// What the judge needs to know of this moment if a dump of the ledger is restored.
    pub fn dumped(&self) -> Box<AllSeries> {
        Box::new(self.series.clone())
    }

    /// The ledger has these tables, as it had when the series were so.
    pub fn restored(&mut self, now: UnixMs, tables: Tables, series: AllSeries) {
        self.read_redis();
        let Tables { rows, archived } = tables;
        self.archive.restored(&archived);
        self.restored_at = Some(now);
        self.series.restored(series);
        let ends = |span: &mut Option<UnixMs>| *span = span.or(Some(now));
        let spans = self.armings.values_mut();
        spans
            .filter_map(|spans| spans.last_mut())
            .for_each(|(_, end)| ends(end));
        self.cancelled.values_mut().for_each(|(_, end)| ends(end));
        let rows: BTreeMap<u64, Row> = rows.into_iter().map(|row| (row.id, row)).collect();
        let is_other =
            |(id, row): &(&u64, &Row)| self.rows.get(id).is_none_or(|now| !same(now, row));
        let changed = rows.iter().filter(is_other).map(|(id, _)| *id);
        self.changed_since_dump.extend(changed.collect::<Vec<_>>());
        let keys: BTreeSet<&TaskKey> = rows.values().map(|row| &row.key).collect();
        let gone = self.rows.values().filter(|row| !keys.contains(&row.key));
        self.gone_since_dump
            .extend(gone.map(|row| row.key.to_string()));
        self.rows = rows;
        self.since = self.rows.keys().map(|id| (*id, now)).collect();
        self.op_wrote = BTreeMap::new();
        for row in self.rows.clone().values() {
            self.armed(row, now);
            if row.deleted || row.status == Status::Cancelled {
                self.cancelled.insert(row.key.to_string(), (now, None));
            }
        }
        let rows = &self.rows;
        for push in self.pushes.values_mut() {
            push.row = push.row.filter(|row| rows.contains_key(row));
        }
        for claim in self.claims.values_mut() {
            claim.is_disturbed = true;
            claim.may_crash = true;
        }
        self.expect_keys_without_rows(now);
    }

    /// True if the entry of this row may be gone although no program has removed it: the task has run, or was moved or
    /// cancelled, since the dump that was restored; or it has run for a later time, whose entry is removed late with all that
    /// are for an earlier one.
    pub(super) fn may_miss_entry(&self, row: &Row) -> bool {
        let has_run_for_later = |claim: &Claim| claim.row == row.id && claim.due > row.end_time;
        row.origin == Origin::Entry
            && (self.changed_since_dump.contains(&row.id)
                || self.claims.values().any(has_run_for_later))
    }

    /// Redis is down for good: nothing tells a daemon of a key any more.
    pub fn redis_is_gone(&mut self) {
        self.without_row.clear();
    }

    fn expect_keys_without_rows(&mut self, now: UnixMs) {
        let Some(redis) = &self.redis else { return };
        let has_row = |key: &str| self.rows.values().any(|row| row.key.as_str() == key);
        let keys = self.keys.iter().filter(|key| !has_row(key));
        let expected = keys.filter_map(|key| match redis.peek(0, key)? {
            (_, Some(due)) if due > now => Some(KeyWithoutRow {
                key: key.clone(),
                due,
                at: now,
            }),
            _ => None,
        });
        self.without_row.extend(expected);
    }

    /// Looks whether those keys have become tasks by the time they expire, where all was well then and nothing else was done
    /// to them. A forged expiry of a key without a row runs its task at once.
    pub(super) fn adopted_after_restore(&mut self, now: UnixMs) {
        if let Some(redis) = &self.redis {
            // Nothing tells of a key that Redis has lost, as at a restart without its data.
            let is_there = |key: &str| redis.peek(0, key).is_some();
            self.without_row
                .retain(|expected| expected.due <= now || is_there(&expected.key));
        }
        let is_due = |expected: &KeyWithoutRow| expected.due.0 + 5_000 <= now.0;
        let (due, later) = std::mem::take(&mut self.without_row)
            .into_iter()
            .partition(is_due);
        self.without_row = later;
        let due: Vec<KeyWithoutRow> = due;
        for expected in due {
            let KeyWithoutRow { key, due, at } = &expected;
            let touched = self.touched.get(key).map(Vec::as_slice);
            let mut touched = touched.unwrap_or_default().iter();
            let is_changed = touched.any(|touch| touch.at > *at && touch.what != "expired");
            let mut later = self.ops.iter().filter(|op| op.at > *at);
            if self.rest_from > *due || is_changed || later.any(|op| self.names(&op.op, key)) {
                continue;
            }
            self.looked.restored += 1;
            let fits = |row: &Row| {
                row.key.as_str() == key && row.end_time.0.abs_diff(due.0) <= TOLERANCE_MS
            };
            if !self.rows.values().any(fits) {
                self.accuse(Anomaly::Lost, format!("at {}: {expected:?}", now.0));
            }
        }
    }
}
