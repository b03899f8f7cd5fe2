//! Which change of a row is allowed to whom.

use std::time::Duration;

use lapsed_core::ledger::Owner;
use lapsed_core::ledger::row::{Row, Status};
use lapsed_core::task::{Envelope, UnixMs};

use super::{Anomaly, Claim, Invocation, Judge, SENT_BEFORE, brief, due_at, is_pulled, key_of};
use crate::attempts::{RETRY, attempts_max, class_of};
use crate::plan::{Op, Verb};
use crate::record::{Actor, End};

impl Judge {
    pub(super) fn changed(&mut self, actor: Actor, now: UnixMs, old: &Row, new: &Row) {
        if old.end_time != new.end_time {
            self.disarmed(old, now);
            self.armed(new, now);
            match actor {
                Actor::Op(_) => {
                    self.is_for_key(actor, new, "moved");
                    self.is_due_of(actor, new);
                    self.series.moved(new);
                }
                Actor::Daemon { .. } if new.recurrence.is_some() => {
                    self.moved_on(actor, now, old, new);
                }
                _ => {
                    self.is_of_a_key(actor, now, new, "moved");
                    self.is_younger_than_op(actor, now, new);
                }
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
        let is_daemon = matches!(actor, Actor::Daemon { .. });
        if is_daemon && old.deleted && !new.deleted && old.end_time == new.end_time {
            self.looked.undeleted += 1;
        }
        if old.owner != new.owner && new.lease_until >= now && new.owner.is_some() {
            self.claimed(actor, now, old, new);
        } else if old.owner == new.owner && new.lease_until > old.lease_until.max(UnixMs(0)) {
            self.renewed(actor, now, old, new);
        } else if old.lease_until > now && new.lease_until < now {
            self.released(actor, now, old, new);
        }
        if old.recurrence != new.recurrence {
            self.is_configured(actor, new);
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

    pub(super) fn claimed(&mut self, actor: Actor, now: UnixMs, old: &Row, new: &Row) {
        self.claims_seen += 1;
        self.started(now, new);
        let what = format!("{actor:?} claimed {} at {}", brief(old), now.0);
        if self.series.has_succeeded(old) {
            self.accuse(Anomaly::Doubled, format!("{what}: the occurrence is done"));
        }
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
        self.is_deleted_by_old_program(&what, old);
        if new.end_time != old.end_time || new.run_end != new.end_time {
            self.accuse(Anomaly::RanOlderArming, &what);
        }
        let has_run = old.run_end == old.end_time;
        let attempt = if has_run { old.attempt + 1 } else { 1 };
        if new.attempt != attempt || !has_run && new.crashes > 0 {
            let text = format!("{what}: attempt {attempt} is wanted, {}", brief(new));
            self.accuse(Anomaly::Miscounted, text);
        }
        if !matches!(actor, Actor::Daemon { .. }) {
            self.accuse(Anomaly::ChangedWithoutCause, &what);
        }
        if new.crashes > old.crashes && old.run_end == old.end_time {
            let holder = old
                .owner
                .and_then(|owner| self.claims.get(&key_of(owner, old.id)));
            // A worker whose daemon has stopped cannot renew.
            let is_cut_off = |holder: &Claim| {
                holder.may_crash || holder.was_refused(now) || is_pulled(old) && holder.is_disturbed
            };
            if let Some(holder) = holder
                && !is_cut_off(holder)
            {
                let text = format!(
                    "{what}: a crash is counted, and nothing disturbed {:?}",
                    holder.by
                );
                self.accuse(Anomaly::LeaseLostWithoutCause, text);
            }
        }
        let owner = new.owner.unwrap_or(Owner([0; 16]));
        let waits = self.waiting.get(&actor).is_some_and(|count| *count > 0);
        let thawed = self.thawed.get(&actor);
        let has_thawed = thawed.is_some_and(|at| now <= at.plus(SENT_BEFORE));
        self.claims.insert(
            key_of(owner, new.id),
            Claim {
                number: self.claims_seen,
                by: actor,
                owner: owner.0,
                row: new.id,
                due: new.end_time,
                at: now,
                attempt: new.attempt,
                envelope: Envelope::open(new.contents.payload.clone()),
                is_called: false,
                end: None,
                is_disturbed: waits || has_thawed || self.stopping.contains(&actor),
                may_crash: waits,
                refused: None,
                lease: new.lease_until.since(now),
                lease_until: new.lease_until,
            },
        );
    }

    pub(super) fn renewed(&mut self, actor: Actor, now: UnixMs, old: &Row, new: &Row) {
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
        if by != Some(actor) && !is_pulled(old) {
            self.accuse(Anomaly::FencedResultApplied, text);
        }
    }

    pub(super) fn released(&mut self, actor: Actor, now: UnixMs, old: &Row, new: &Row) {
        let claim = old
            .owner
            .and_then(|owner| self.claims.get(&key_of(owner, old.id)));
        let Some(claim) = claim else { return };
        let is_dead = claim.is_disturbed;
        let is_pending_again =
            claim.by == actor && claim.due == new.end_time && new.status == Status::Unprocessed;
        let (is_called, end, began) = (claim.is_called, claim.end, claim.at);
        if claim.by != actor && !is_dead && !is_pulled(old) && !matches!(actor, Actor::Op(_)) {
            let text = format!(
                "{actor:?} ended the lease of {:?}: {} -> {}",
                claim.by,
                brief(old),
                brief(new)
            );
            self.accuse(Anomaly::Doubled, text);
        }
        if is_pending_again && is_called && end.is_none() && !is_dead && !is_pulled(old) {
            let text = format!(
                "{actor:?} ended a run, and nothing disturbed it: {}",
                brief(old)
            );
            self.accuse(Anomaly::LeaseLostWithoutCause, text);
        }
        if is_pending_again && end == Some(End::Succeeded) && !is_dead && !is_pulled(old) {
            let text = format!(
                "{actor:?} has a run repeated that succeeded: {}",
                brief(old)
            );
            self.accuse(Anomaly::Doubled, text);
        }
        if !is_called {
            self.did_not_start(began, old);
        }
        // Retries are spread, and count from the estimate of the process.
        let retry_at = UnixMs(new.retry_at.0 + self.misread_ms(actor));
        if is_pending_again && end == Some(End::Failed) && retry_at < began.plus(RETRY / 2) {
            let text = format!(
                "{actor:?} at {} has it retried too soon: {}",
                now.0,
                brief(new)
            );
            self.accuse(Anomaly::Early, text);
        }
        if is_pending_again && !is_called && new.attempt >= old.attempt {
            let text = format!(
                "{actor:?} gave back what had not started: {} -> {}",
                brief(old),
                brief(new)
            );
            self.accuse(Anomaly::Miscounted, text);
        }
    }

    pub(super) fn ended_in_ledger(&mut self, actor: Actor, now: UnixMs, old: &Row, new: &Row) {
        let what = format!("{actor:?} at {}: {} -> {}", now.0, brief(old), brief(new));
        let claim = old
            .owner
            .and_then(|owner| self.claims.get(&key_of(owner, old.id)).cloned());
        match (new.status, actor) {
            (Status::Processed, Actor::Daemon { .. }) => {
                let fits = claim.as_ref().is_some_and(|claim| {
                    // A worker reports to any daemon.
                    (claim.by == actor || is_pulled(old)) && claim.due == old.end_time
                });
                if !fits {
                    self.accuse(Anomaly::FencedResultApplied, what);
                } else if old.recurrence.is_some() {
                    // It was cancelled during a run, or instead of one.
                } else if claim.as_ref().and_then(|claim| claim.end) != Some(End::Succeeded) {
                    self.accuse(Anomaly::Lost, format!("{what}: done, and did not succeed"));
                } else if !is_pulled(old)
                    && new.result != claim.map(|claim| claim.attempt.to_string())
                {
                    // A program keeps the number of its attempt.
                    let text = format!("{what}: its result is {:?}", new.result);
                    self.accuse(Anomaly::Lost, text);
                }
            }
            (Status::Dead, Actor::Daemon { .. }) => {
                let end = claim
                    .filter(|claim| claim.due == old.end_time)
                    .and_then(|claim| claim.end);
                if end == Some(End::Succeeded) {
                    self.accuse(Anomaly::Lost, format!("{what}: dead, and had succeeded"));
                }
                if end == Some(End::Failed) && old.attempt < attempts_max(old.key.as_str()) {
                    self.accuse(
                        Anomaly::Lost,
                        format!("{what}: dead before its last attempt"),
                    );
                }
                if new.recurrence.is_some() && new.crashes < 3 {
                    self.accuse(Anomaly::Lost, format!("{what}: a series is dead"));
                }
                if end.is_none() && new.crashes < 3 {
                    self.accuse(Anomaly::Lost, format!("{what}: dead without a run"));
                }
            }
            (Status::Cancelled, Actor::Daemon { .. }) if old.deleted => {}
            (Status::Cancelled, Actor::Daemon { .. })
                if self.was_removed(old) || self.may_miss_entry(old) => {}
            // Its configuration has changed.
            (Status::Unprocessed, Actor::Daemon { .. })
                if new.recurrence.is_some() && self.is_another_rule(old, new) => {}
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
    pub(super) fn is_for_key(&mut self, actor: Actor, row: &Row, what: &str) {
        let is_meant = match actor {
            Actor::Op(number) => self.is_meant(number, row),
            _ => false,
        };
        if !is_meant {
            let text = format!("{actor:?} {what} {}", brief(row));
            self.accuse(Anomaly::ChangedWithoutCause, text);
        }
    }

    pub(super) fn is_meant(&self, number: usize, row: &Row) -> bool {
        self.names(&self.ops[number].op, row.key.as_str())
    }

    /// True if an operation is about the task of this key.
    pub(super) fn names(&self, op: &Op, key: &str) -> bool {
        match &op.verb {
            Verb::CancelAll | Verb::RedriveAll => class_of(key) == class_of(&self.keys[op.key]),
            Verb::CreateMany { keys, .. } => keys.iter().any(|named| self.keys[*named] == key),
            _ => self.keys[op.key] == key,
        }
    }

    /// The due time that an operation wrote is what it asked for: exact, or counted from some time since it began.
    pub(super) fn is_due_of(&mut self, actor: Actor, row: &Row) {
        let Actor::Op(number) = actor else { return };
        let Invocation { op, at, .. } = &self.ops[number];
        let delay = match &op.verb {
            Verb::Create { delay, .. }
            | Verb::CreateMany { delay, .. }
            | Verb::CreateInGroup { delay, .. }
            | Verb::Reschedule { delay }
            | Verb::SqlCreate { delay }
            | Verb::RespSet { delay }
            | Verb::RespExpire { delay } => *delay,
            Verb::OldCreate { seconds } => Duration::from_secs((*seconds).into()),
            Verb::RunNow | Verb::Redrive | Verb::RedriveAll => Duration::ZERO,
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

    pub(super) fn is_cancel(&mut self, number: usize, row: &Row) {
        let is_cancel = matches!(
            self.ops[number].op.verb,
            Verb::Cancel | Verb::CancelAll | Verb::SqlCancel | Verb::OldDelete | Verb::RespDelete
        );
        if !is_cancel || !self.is_meant(number, row) {
            let text = format!("op {number} cancelled {}", brief(row));
            self.accuse(Anomaly::ChangedWithoutCause, text);
        }
    }

    pub(super) fn without_cause(&mut self, actor: Actor, old: &Row, new: &Row, what: &str) {
        let text = format!("{actor:?} {what} {} -> {}", brief(old), brief(new));
        self.accuse(Anomaly::ChangedWithoutCause, text);
    }
}
