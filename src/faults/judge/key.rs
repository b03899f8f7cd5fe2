//! Judges one key.

use super::excuses::{Faults, LATE_MS_MAX, RECOVERY_MS, START_MS_MAX};
use super::found::{Anomaly, Verdict};
use crate::history::{Ended, Left, Ms, Op, Row, Run, Source, Step, Story};
use crate::target::length;

/// Keys of Redis are due by its clock, and a row by that of the ledger when it was written.
const ADOPTED_MS: Ms = 20;

/// All that is known of a key.
pub(super) struct Case<'a> {
    pub key: &'a str,
    pub story: &'a Story,
    pub row: Option<&'a Row>,
    /// By their beginning.
    pub runs: Vec<&'a Run>,
    pub faults: &'a Faults,
}

/// An arming, and what came after it.
struct Arming<'a> {
    op: &'a Op,
    due: Ms,
    /// The next operation that was answered.
    next: Option<&'a Op>,
    /// Nothing was asked after it.
    is_last: bool,
    runs: Vec<&'a Run>,
}

impl<'a> Case<'a> {
    pub fn judge(&self, verdict: &mut Verdict) {
        for wrong in &self.story.wrong {
            verdict.add(Anomaly::WrongAnswer, self.line(wrong));
        }
        let unknown = self.story.ops.iter().filter(|op| op.answered.is_none());
        verdict.counts.unknown += unknown.count() as u64;
        verdict.counts.runs += self.runs.len() as u64;
        let mut armings = self.armings();
        for run in &self.runs {
            let arming = armings
                .iter_mut()
                .rev()
                .find(|arming| self.is_for(run, arming.due));
            match arming {
                Some(arming) => arming.runs.push(run),
                None => verdict.add(Anomaly::Unrequested, self.line("nobody armed it for this")),
            }
            if run.started < run.due {
                let early = format!("{} ms too early", run.due - run.started);
                verdict.add(Anomaly::Early, self.line(&early));
            }
        }
        for arming in &armings {
            self.judge_arming(arming, verdict);
        }
        self.judge_result(verdict);
        if let Some(last) = armings
            .last()
            .filter(|last| last.op.answered.is_some() && last.is_last)
        {
            self.judge_end(last, verdict);
        }
        self.judge_cancelled(verdict);
    }

    fn armings(&self) -> Vec<Arming<'a>> {
        let ops = &self.story.ops;
        let armed = ops
            .iter()
            .enumerate()
            .filter_map(|(place, op)| match op.step {
                Step::Arm { due, .. } => Some(Arming {
                    op,
                    due,
                    next: ops.get(place + 1).filter(|next| next.answered.is_some()),
                    is_last: place + 1 == ops.len(),
                    runs: Vec::new(),
                }),
                Step::Cancel { .. } => None,
            });
        armed.collect()
    }

    /// An adopted key may be due later: a daemon that finds it expired writes down when that was.
    fn is_for(&self, run: &Run, due: Ms) -> bool {
        match self.story.source {
            Source::Redis => run.due >= due - ADOPTED_MS,
            _ => run.due == due,
        }
    }

    fn judge_arming(&self, arming: &Arming<'_>, verdict: &mut Verdict) {
        if let Some(answered) = arming.op.answered {
            verdict.counts.armings += 1;
            self.judge_lateness(arming, arming.due.max(answered), verdict);
        }
        if let Some(next) = arming.next {
            self.judge_replaced(arming, next, verdict);
        }
        for pair in arming.runs.windows(2) {
            let (first, again) = (pair[0], pair[1]);
            if first.ended == Ended::Failed {
                verdict.counts.retries += 1;
            } else if self
                .faults
                .interrupts(first.daemon, first.started, again.started)
            {
                verdict.counts.repeated += 1;
            } else {
                let apart = format!("again after {} ms", again.started - first.started);
                verdict.add(Anomaly::Doubled, self.line(&apart));
            }
        }
    }

    fn judge_lateness(&self, arming: &Arming<'_>, ready: Ms, verdict: &mut Verdict) {
        let replaced = arming
            .next
            .is_some_and(|next| next.asked < ready + LATE_MS_MAX);
        let Some(first) = arming.runs.first().filter(|_| !replaced) else {
            return;
        };
        let bare = self.story.source == Source::Redis;
        if bare && self.faults.hides_keys(arming.op.asked, first.started) {
            return;
        }
        // The run of an older arming ends first.
        let older = self.runs.iter().filter(|run| run.due < arming.due);
        let ready = older
            .map(|run| {
                let kept = self.faults.kept_until(run.daemon, run.started);
                kept.unwrap_or(run.started + self.length_ms())
            })
            .fold(ready, Ms::max);
        let from = self.faults.promised_from(ready);
        let late = first.started - from;
        if from == ready {
            verdict.late_ms.push((ready, late));
        }
        if late > LATE_MS_MAX + START_MS_MAX {
            let line = format!(
                "{late} ms late, {} ms after it was due",
                first.started - arming.due
            );
            verdict.add(Anomaly::Late, self.line(&line));
        }
    }

    fn length_ms(&self) -> Ms {
        let method = self.key.split('@').nth(1).unwrap_or_default();
        i64::try_from(length(method).as_millis()).unwrap_or(Ms::MAX)
    }

    /// Runs of an arming that another operation has ended.
    fn judge_replaced(&self, arming: &Arming<'_>, next: &Op, verdict: &mut Verdict) {
        let Some(ended) = next.answered else { return };
        let (anomaly, busy) = match next.step {
            Step::Arm { busy, .. } => (Anomaly::RanForOlderArming, busy),
            Step::Cancel { busy } => (Anomaly::RanAfterCancel, busy),
        };
        match next.step {
            Step::Arm { .. } => verdict.counts.replaced += 1,
            Step::Cancel { .. } => verdict.counts.cancelled += 1,
        }
        let mut after = arming.runs.iter().filter(|run| run.started > ended);
        // It had been claimed. If it was given back, it starts once more.
        if busy {
            after.next();
        }
        for run in after {
            if !self.faults.delays(run.daemon, ended, run.started) {
                let line = format!("{} ms after the answer", run.started - ended);
                verdict.add(anomaly, self.line(&line));
            }
        }
    }

    /// The result in the row is that of a run for its due time, which had its claim.
    fn judge_result(&self, verdict: &mut Verdict) {
        let Some(row) = self.row else { return };
        let Some(number) = row.result else { return };
        let run = self.runs.iter().find(|run| run.number == number);
        let is_right =
            run.is_some_and(|run| run.due == row.due && !run.fenced && run.ended == Ended::Done);
        if !is_right {
            let line = format!("the row has the result of {run:?}");
            verdict.add(Anomaly::FencedResultApplied, self.line(&line));
        }
    }

    /// What has become of an arming that nothing has replaced.
    fn judge_end(&self, last: &Arming<'_>, verdict: &mut Verdict) {
        let row = self.row.filter(|row| row.due >= last.due - ADOPTED_MS);
        let Some(row) = row else {
            let until = last.runs.first().map_or(last.due, |run| run.started);
            let bare = self.story.source == Source::Redis;
            match bare && self.faults.hides_keys(last.op.asked, until) {
                true => verdict.counts.unpromised += 1,
                false => verdict.add(
                    Anomaly::AcknowledgedBeforeDurable,
                    self.line("no row has it"),
                ),
            }
            return;
        };
        let ran = last.runs.iter().any(|run| run.ended == Ended::Done);
        match row.left {
            Left::Pending => verdict.add(Anomaly::Stuck, self.line("it is still pending")),
            Left::Dead if row.is_poison => verdict.counts.poison += 1,
            Left::Done if ran => {}
            Left::Done | Left::Dead | Left::Cancelled => {
                verdict.add(Anomaly::Lost, self.line("no run of it succeeded"));
            }
        }
    }

    /// A task whose last operation was a cancellation that found it pending is cancelled.
    fn judge_cancelled(&self, verdict: &mut Verdict) {
        let Some(Op {
            answered: Some(_),
            step: Step::Cancel { busy: false },
            ..
        }) = self.story.ops.last()
        else {
            return;
        };
        match self.row.map(|row| row.left) {
            Some(Left::Cancelled) => {}
            _ => verdict.add(
                Anomaly::AcknowledgedBeforeDurable,
                self.line("it is not cancelled"),
            ),
        }
    }

    /// A line for people.
    fn line(&self, what: &str) -> String {
        let Self {
            key,
            story,
            row,
            runs,
            faults,
        } = self;
        let from = story.ops.first().map_or(0, |op| op.asked);
        let to = runs.last().map_or(from, |run| run.started);
        let faults = faults.between(from, to, RECOVERY_MS);
        let faults: Vec<String> = faults
            .map(|it| format!("{} {}..{}", it.name, it.from, it.to))
            .collect();
        format!(
            "{key}: {what}; {:?} {:?}; {row:?}; {runs:?}; {faults:?}",
            story.source, story.ops
        )
    }
}
