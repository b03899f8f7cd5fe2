//! Programs that know only the first six columns: they leave `sts = 1` when they create again what they have deleted, so that
//! keys and their events tell whether a task is deleted.

use std::time::Duration;

use lapsed_core::ledger::row::Row;
use lapsed_core::task::UnixMs;

use super::{Anomaly, Invocation, Judge, Touch, brief};
use crate::plan::{Action, FAULTS, Fault, FaultKind, Plan, START, Step, Verb};
use crate::record::Answer;

/// How long before its due time a task must be deleted, so that its key has surely not expired: such programs count in
/// seconds.
const AHEAD: Duration = Duration::from_secs(3);

/// How long before and after such a fault a task is not judged: subscriptions begin again, and clocks are read.
const AROUND_MS: i64 = 10_000;

impl Judge {
    /// When a daemon may not read each event of a key, or may not know when it was published.
    pub(super) fn unheard_spans(plan: &Plan) -> Vec<(UnixMs, UnixMs)> {
        let of = |step: &Step| {
            let Action::Fault(Fault { kind, length, .. }) = step.action else {
                return None;
            };
            let lasts = match kind {
                FaultKind::LedgerRestored | FaultKind::ConfigChange => FAULTS,
                FaultKind::Kill
                | FaultKind::Stop
                | FaultKind::ClockOff
                | FaultKind::ClockDrifts
                | FaultKind::ClockAtStart
                | FaultKind::SignalsLost => length,
                kind if kind.is_of_redis() => length,
                _ => return None,
            };
            let at = START.plus(step.at);
            Some((
                UnixMs(at.0 - AROUND_MS),
                UnixMs(at.plus(lasts).0 + AROUND_MS),
            ))
        };
        let mut spans: Vec<_> = plan.steps.iter().filter_map(of).collect();
        // Daemons that are frozen when the faults end are started again.
        let healed = START.plus(FAULTS).0 - 2 * AROUND_MS;
        spans.push((UnixMs(healed), UnixMs(i64::MAX)));
        spans
    }

    /// A task that was deleted in time is not started.
    pub(super) fn is_deleted_by_old_program(&mut self, what: &str, row: &Row) {
        let latest = self.latest_of(row);
        if let Some(Invocation {
            op,
            answered: Some((at, answer)),
            ..
        }) = latest
            && op.verb == Verb::OldDelete
            && !matches!(answer, Answer::Failed(_))
            && at.plus(AHEAD) < row.end_time
            && !self.has_forged(row, *at)
            && !self.has_restarted_since(*at)
            && self.restored_at.is_none_or(|restored| restored < *at)
        {
            let text = format!("{what}, which was deleted at {}", at.0);
            self.accuse(Anomaly::RanAfterCancel, text);
        }
    }

    /// A task that was created again is not taken for a deleted one, if daemons read all events from its creation to its expiry.
    pub fn are_created_again(&mut self) {
        let lost = self
            .rows
            .values()
            .filter(|row| row.deleted && self.is_created_again(row));
        let lost: Vec<String> = lost.map(brief).collect();
        for row in lost {
            self.accuse(Anomaly::Lost, format!("created again, and deleted: {row}"));
        }
    }

    fn is_created_again(&self, row: &Row) -> bool {
        let has_failed = |invocation: &Invocation| {
            let answer = invocation.answered.as_ref().map(|(_, answer)| answer);
            matches!(answer, None | Some(Answer::Failed(_)))
        };
        let mut of_it = self
            .ops
            .iter()
            .filter(|invocation| self.names(&invocation.op, row.key.as_str()));
        let Some(latest) = self.latest_of(row) else {
            return false;
        };
        let may_be_unheard = self
            .unheard
            .iter()
            .any(|(from, to)| latest.at <= *to && *from <= row.end_time.max(latest.at));
        matches!(latest.op.verb, Verb::OldCreate { .. })
            && !may_be_unheard
            && !of_it.any(has_failed)
    }

    /// True if a client has published the expiry of its key since then.
    fn has_forged(&self, row: &Row, since: UnixMs) -> bool {
        let touched = self.touched.get(row.key.as_str());
        let is_forged = |touch: &Touch| touch.what == "forged" && touch.at >= since;
        touched.is_some_and(|touched| touched.iter().any(is_forged))
    }

    fn latest_of(&self, row: &Row) -> Option<&Invocation> {
        let mut ops = self.ops.iter().rev();
        ops.find(|invocation| self.names(&invocation.op, row.key.as_str()))
    }
}
