//! Recurring tasks: each occurrence runs once, none early, none twice, and none is left out that has to run.

use lapsed_core::ledger::row::{Row, Status};
use lapsed_core::task::{CatchUp, Overlap, TaskKey, UnixMs};

use super::pushes::is_pushed;
use super::{Anomaly, Judge, brief, key_of};
use crate::plan::{FaultKind, Series};
use crate::record::{Actor, End};

/// How far the ledger's clock may be misread by a process that has such a fault.
const MISREAD_MS: i64 = 8_000;

/// How far it may be misread otherwise.
const READ_MS: i64 = 100;

impl Judge {
    pub fn configured(&mut self, series: &Series) {
        let rules = self.series.rules.entry(series.key.clone()).or_default();
        rules.push(series.rule);
    }

    /// A process that may misread the ledger's clock from now on.
    pub(super) fn misread_clock(&mut self, actor: Actor, kind: FaultKind) {
        let misreads = match (kind, actor) {
            (FaultKind::ClockOff | FaultKind::ClockDrifts, actor) => actor,
            (FaultKind::ClockAtStart, Actor::Daemon { number, start }) => Actor::Daemon {
                number,
                start: start + 1,
            },
            _ => return,
        };
        self.series.misread.insert(misreads);
    }

    /// A daemon has inserted a row: a series of its configuration, an occurrence that is a task of its own, or a key.
    pub(super) fn inserted(&mut self, actor: Actor, now: UnixMs, row: &Row) {
        if is_pushed(row) {
            self.is_of_a_push(actor, now, row);
        } else if row.recurrence.is_some() {
            self.is_configured(actor, row);
            self.began(actor, now, row);
        } else if let Some(series) = series_of(row) {
            let series = self.rows.values().find(|row| row.key.as_str() == series);
            let is_held = series.is_some_and(|series| {
                series.end_time == row.end_time
                    && series.lease_until >= now
                    && self.is_claimed_by(actor, series)
            });
            // Redis keeps the key of a retry whose row a dump lacks.
            if !is_held && self.restored_at.is_some() {
                self.is_of_a_key(actor, now, row, "inserted");
            } else if !is_held {
                let text = format!("{actor:?} inserted {}", brief(row));
                self.accuse(Anomaly::ChangedWithoutCause, text);
            }
        } else {
            self.is_of_a_key(actor, now, row, "inserted");
            self.is_not_revived(actor, now, row);
        }
    }

    /// The recurrence of a row is one that the configuration has or has had.
    pub(super) fn is_configured(&mut self, actor: Actor, row: &Row) {
        if row.recurrence.is_some() && self.series.rule_of(row).is_none() {
            let text = format!("{actor:?} wrote {:?} of {}", row.recurrence, brief(row));
            self.accuse(Anomaly::ChangedWithoutCause, text);
        }
    }

    pub(super) fn is_another_rule(&self, old: &Row, new: &Row) -> bool {
        self.series.rule_of(old) != self.series.rule_of(new)
    }

    /// A series begins, or begins anew by another rule: no time of the rule that is to come is left out.
    fn began(&mut self, actor: Actor, now: UnixMs, row: &Row) {
        let Some(rule) = self.series.rule_of(row) else {
            return;
        };
        let due = row.end_time;
        if !rule.has(due) {
            let text = format!(
                "{actor:?} at {}: no time of its rule: {}",
                now.0,
                brief(row)
            );
            self.accuse(Anomaly::Early, text);
        }
        if rule.next(UnixMs(now.0 + self.misread_ms(actor))) < due {
            let text = format!("{actor:?} at {}: begins late: {}", now.0, brief(row));
            self.accuse(Anomaly::Lost, text);
        }
        self.series.reached.insert(row.id, due);
    }

    /// A daemon has moved a series to another occurrence.
    pub(super) fn moved_on(&mut self, actor: Actor, now: UnixMs, old: &Row, new: &Row) {
        let Some(rule) = self.series.rule_of(new) else {
            return;
        };
        if self.is_another_rule(old, new) {
            self.looked.rules += 1;
            return self.began(actor, now, new);
        }
        let (from, to) = (old.end_time, new.end_time);
        let claim = old
            .owner
            .and_then(|owner| self.claims.get(&key_of(owner, old.id)));
        let claim = claim.filter(|claim| claim.by == actor && claim.due == from);
        // The end of a run counts until another daemon has claimed the task, although the lease is over.
        let has_ended = claim.is_some_and(|claim| claim.end.is_some());
        if old.lease_until < now && !has_ended {
            // Nothing ran: its key in Redis says so.
            self.series.moved(new);
            self.is_of_a_key(actor, now, new, "moved");
            return self.is_younger_than_op(actor, now, new);
        }
        let what = format!("{actor:?} at {}: {} -> {}", now.0, brief(old), brief(new));
        let Some(claim) = claim else {
            return self.accuse(Anomaly::FencedResultApplied, what);
        };
        let (started, end) = (claim.at, claim.end);
        let runs = claim.is_called && end.is_none();
        if !claim.is_called {
            self.did_not_start(started, old);
        }
        let now = UnixMs(now.0 + self.misread_ms(actor));
        let is_done = match rule.overlap {
            Overlap::Skip => self.series.called.contains(&(old.id, from)),
            Overlap::Allow => self.has_task_of(&old.key, from),
        };
        self.looked.occurrences += u64::from(is_done);
        if runs || !is_done && !rule.is_missed(from, now) {
            let text = format!("{what}: its occurrence is left out");
            self.accuse(Anomaly::Lost, text);
        }
        if !rule.has(to) {
            self.accuse(Anomaly::Early, format!("{what}: no time of its rule"));
        }
        let reached = self.series.reached.get(&old.id).copied();
        let reached = reached.unwrap_or(from);
        if to < reached || self.series.has_succeeded(new) {
            self.accuse(Anomaly::Doubled, format!("{what}: an older occurrence"));
        }
        let mut time = rule.next(reached);
        while time < to {
            let is_left_out = match rule.catch_up {
                _ if time <= from => true,
                CatchUp::Skip => rule.is_missed(time, now),
                CatchUp::Once => time.0 <= started.0 + self.misread_ms(actor),
                CatchUp::All => false,
            };
            if !is_left_out {
                let text = format!("{what}: {} is left out", time.0);
                self.accuse(Anomaly::Lost, text);
            }
            time = rule.next(time);
        }
        if end == Some(End::Succeeded) {
            self.series.succeeded.insert((old.id, from));
        }
        self.series.reached.insert(old.id, to);
    }

    /// Every series is as its latest configuration says, or has been cancelled, or has taken daemons down.
    pub fn series_end(&mut self, now: UnixMs) {
        self.series.are_over = true;
        for (key, rules) in self.series.rules.clone() {
            let row = self.rows.values().find(|row| row.key.as_str() == key);
            let is_right = row.is_some_and(|row| {
                let has_ended = matches!(row.status, Status::Cancelled | Status::Dead);
                // A daemon looks whether it still runs every two seconds.
                let rests_since = self.since.get(&row.id).map_or(0, |since| since.0 + 4_000);
                let has_run = row.lease_until >= now || rests_since > now.0;
                has_ended
                    || row.deleted
                    || has_run
                    || self.series.rule_of(row).as_ref() == rules.last()
            });
            if !is_right {
                let row = row.map(|row| (brief(row), row.recurrence.clone()));
                let text = format!("at {}: {key} is not as configured: {row:?}", now.0);
                self.accuse(Anomaly::Lost, text);
            }
        }
    }

    /// The key of a series whose program has run for at most 1.5 s, and may take longer.
    pub fn slow_series_runs(&self, now: UnixMs) -> Option<String> {
        let runs = |row: &&Row| {
            let claim = row
                .owner
                .and_then(|owner| self.claims.get(&key_of(owner, row.id)));
            row.recurrence.is_some()
                && row.key.method() == "slow"
                && row.status == Status::Unprocessed
                && row.lease_until >= now
                && !row.deleted
                && claim.is_some_and(|claim| {
                    claim.is_called && claim.end.is_none() && claim.at.0 + 1_500 >= now.0
                })
        };
        let row = self.rows.values().find(runs)?;
        Some(row.key.to_string())
    }

    fn is_claimed_by(&self, actor: Actor, row: &Row) -> bool {
        let claim = row
            .owner
            .and_then(|owner| self.claims.get(&key_of(owner, row.id)));
        claim.is_some_and(|claim| claim.by == actor)
    }

    /// True if there is a task of this occurrence.
    fn has_task_of(&self, series: &TaskKey, due: UnixMs) -> bool {
        // Its due time is another if its row was lost, and its key in Redis made it a task again.
        let key = format!("{series}@~{}", due.0);
        self.rows.values().any(|row| row.key.as_str() == key)
    }

    pub(super) fn misread_ms(&self, actor: Actor) -> i64 {
        match self.series.misread.contains(&actor) {
            true => MISREAD_MS,
            false => READ_MS,
        }
    }
}

/// The key of the series of which a task is an occurrence.
fn series_of(row: &Row) -> Option<&str> {
    let (series, _) = row.key.as_str().split_once("@~")?;
    Some(series)
}

/// True for a series, and for a task that is an occurrence of one.
pub(super) fn is_of_series(row: &Row) -> bool {
    row.recurrence.is_some() || series_of(row).is_some()
}
