//! Adoption: a key that some program armed with a bare `SETEX` gets its row, is moved, or is called off.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::candidates::Candidates;
use crate::engine::candidates::Ready;
use crate::engine::deps::Deps;
use crate::engine::queue::SignalQueue;
use crate::ledger::{Adopted, Foundling, LedgerError, Lookup};
use crate::membership::Elder;
use crate::task::{Adoption, Arming, Countdown, State, TaskKey, UnixMs, adoption, is_younger};
use crate::timer::{Alarm, Seen, Sighting, Signal, Source};

/// Keys of one look-up.
const BATCH: usize = 1_024;

/// How long to wait when the ledger did not answer.
const OUTAGE_PAUSE: Duration = Duration::from_millis(500);

/// When a row that another session has locked is tried again.
const LOCKED_PAUSE: Duration = Duration::from_secs(1);

/// How often it is asked whether those who act first are there, and how long the answer may take.
const ELDERS_ASKED_AGAIN: Duration = Duration::from_millis(250);
const ELDERS_PATIENCE: Duration = Duration::from_millis(250);

/// How long a fresh look at keys may take.
const LOOK_PATIENCE: Duration = Duration::from_secs(1);

/// How long a stopping engine may take for the keys that wait.
const REST_TIMEOUT: Duration = Duration::from_secs(5);

/// How often a key is judged whose row changes while that is done.
const ROUNDS: usize = 3;

/// A row to be written for a key, and why: for the metrics.
struct Wanted {
    sighting: Sighting,
    row: Foundling,
    reason: &'static str,
    /// Whether it is to be looked at before it is believed.
    doubt: Doubt,
}

impl Wanted {
    /// When it was heard, if that may have been before the last word on its row.
    fn doubted_since(&self) -> Option<UnixMs> {
        match self.sighting.seen {
            Seen::Armed(seen) if self.doubt != Doubt::None => seen.heard,
            _ => None,
        }
    }
}

/// Whether evidence is younger than the last word on its row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doubt {
    /// It is, by the clocks.
    None,
    /// A fresh look may show that it is not.
    Some,
    /// Only a fresh look can show that it is.
    Much,
}

/// Writes rows for keys that programs armed with a bare `SETEX`.
pub struct Adopter {
    pub deps: Arc<Deps>,
    pub queue: Arc<SignalQueue>,
    pub candidates: Arc<Candidates>,
}

impl Adopter {
    /// Handles sightings when their time has come, until the engine stops; then the rest at once, since nobody may
    /// hear of these keys again.
    pub async fn run(self: Arc<Self>) {
        let ready = async || self.candidates.ready(BATCH).await;
        while let Some(ready) = self
            .deps
            .lifecycle
            .stopping
            .run_until_cancelled(ready())
            .await
        {
            let batch = self.without_the_elders(ready).await;
            if let Err(error) = self.adopt(batch.clone()).await {
                self.deps.ledger_failed("adopt keys", &error);
                // Doing it twice changes nothing.
                self.candidates.put_back(batch, OUTAGE_PAUSE);
                let pause = tokio::time::sleep(OUTAGE_PAUSE);
                self.deps
                    .lifecycle
                    .stopping
                    .run_until_cancelled(pause)
                    .await;
            }
        }
        let rest = async {
            for batch in self.candidates.take_all().chunks(BATCH) {
                if let Err(error) = self.adopt(batch.to_vec()).await {
                    return self.deps.ledger_failed("adopt keys", &error);
                }
            }
        };
        // A daemon that cannot stop is worse: the next one goes through the keys that are still there.
        let _ = tokio::time::timeout(REST_TIMEOUT, rest).await;
    }

    /// Leaves to other daemons what they act on first, as long as they are there.
    async fn without_the_elders(&self, ready: Vec<Ready>) -> Vec<Sighting> {
        let mut there = HashMap::new();
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for ready in ready {
            let waits = !ready.waits_no_longer();
            match ready.elder.filter(|_| waits) {
                Some(elder) => {
                    let is_there = match there.get(&elder.id) {
                        Some(is_there) => *is_there,
                        None => self.is_there(elder).await,
                    };
                    there.insert(elder.id, is_there);
                    match is_there {
                        true => theirs.push(ready),
                        false => ours.push(ready.sighting),
                    }
                }
                None => ours.push(ready.sighting),
            }
        }
        if !theirs.is_empty() {
            self.candidates.leave_to_elders(theirs, ELDERS_ASKED_AGAIN);
        }
        ours
    }

    async fn is_there(&self, elder: Elder) -> bool {
        if !elder.can_be_asked {
            return true;
        }
        let hears = self.deps.membership.is_reachable(elder.id);
        let hears = tokio::time::timeout(ELDERS_PATIENCE, hears).await;
        !matches!(hears, Ok(Ok(false)))
    }

    /// Compares keys with the ledger, and writes what it lacks. Tells how many rows were written.
    pub async fn adopt(&self, mut sightings: Vec<Sighting>) -> Result<usize, LedgerError> {
        let mut written = 0;
        for _ in 0..ROUNDS {
            if sightings.is_empty() {
                break;
            }
            let wanted = self.compare(sightings).await?;
            let wanted = self.without_the_doubtful(wanted).await;
            let rows;
            (rows, sightings) = self.write_wanted(wanted).await?;
            written += rows;
        }
        Ok(written)
    }

    /// What the ledger lacks of these; keys that were deleted are dealt with.
    async fn compare(&self, sightings: Vec<Sighting>) -> Result<Vec<Wanted>, LedgerError> {
        let keys: Vec<TaskKey> = sightings.iter().map(|seen| seen.key.clone()).collect();
        let lookups = self.deps.ledger.look_up(&keys).await?;
        let now = self.deps.ledger.clock().now();
        let mut wanted = Vec::new();
        for (sighting, lookup) in sightings.into_iter().zip(lookups) {
            match sighting.seen {
                Seen::Armed(key) => {
                    let booked = lookup.as_ref().map(Lookup::booked);
                    let reason = match adoption(booked.as_ref(), &key, now) {
                        Adoption::Leave => {
                            self.deps.metrics.dropped("known", 1);
                            continue;
                        }
                        Adoption::Insert if key.alive_at.is_none() => "expired",
                        Adoption::Insert if key.heard.is_some() => "expire",
                        Adoption::Insert => "scan",
                        Adoption::Move => "moved",
                        Adoption::Recreate => "again",
                    };
                    let doubt = match &booked {
                        Some(row) if key.needs_a_look(row, now) => {
                            match key.is_surely_younger(row) {
                                true => Doubt::Some,
                                false => Doubt::Much,
                            }
                        }
                        _ => Doubt::None,
                    };
                    wanted.push(Wanted {
                        row: foundling(&sighting.key, &key, lookup, now),
                        sighting,
                        reason,
                        doubt,
                    });
                }
                // Its event may be about the arming that the row is of, and late.
                Seen::Expired(_) if lookup.is_some() => self.deps.metrics.dropped("known", 1),
                Seen::Expired(due) => wanted.push(Wanted {
                    row: foundling(&sighting.key, &Countdown::expired(due, due), None, now),
                    sighting,
                    reason: "expired",
                    doubt: Doubt::None,
                }),
                Seen::Disarmed(heard) => self.withdraw(&sighting.key, lookup, heard).await?,
            }
        }
        Ok(wanted)
    }

    /// Looks once more at keys that may have been armed before the last word on their rows. If that word reached Redis,
    /// as a deletion or as a key of ours, they are gone.
    async fn without_the_doubtful(&self, wanted: Vec<Wanted>) -> Vec<Wanted> {
        let doubtful = wanted
            .iter()
            .filter(|wanted| wanted.doubt != Doubt::None)
            .map(|wanted| wanted.row.key.clone());
        let keys: Vec<TaskKey> = doubtful.collect();
        if keys.is_empty() {
            return wanted;
        }
        let heard = wanted.iter().filter_map(|wanted| wanted.doubted_since());
        let since = heard.min().unwrap_or_default();
        let look = self.deps.timer.look(&keys, since);
        let looked = tokio::time::timeout(LOOK_PATIENCE, look).await;
        let found = looked.ok().and_then(Result::ok);
        let mut found = found.map(Vec::into_iter);
        let is_believed = |wanted: &Wanted| {
            if wanted.doubt == Doubt::None {
                return true;
            }
            match found.as_mut().map(|found| found.next().flatten()) {
                None => wanted.doubt == Doubt::Some,
                Some(found) => match (found, wanted.sighting.seen) {
                    (Some(found), Seen::Armed(seen)) => found.meant == seen.meant,
                    _ => false,
                },
            }
        };
        let (believed, out_of_date): (Vec<Wanted>, Vec<Wanted>) =
            wanted.into_iter().partition(is_believed);
        self.deps
            .metrics
            .dropped("out_of_date", out_of_date.len() as u64);
        believed
    }

    /// Tells how many rows were written, and which sightings are to be judged again, since their rows have changed.
    async fn write_wanted(
        &self,
        wanted: Vec<Wanted>,
    ) -> Result<(usize, Vec<Sighting>), LedgerError> {
        if wanted.is_empty() {
            return Ok((0, Vec::new()));
        }
        let rows: Vec<Foundling> = wanted.iter().map(|wanted| wanted.row.clone()).collect();
        let answers = self.deps.ledger.adopt(&rows).await?;
        let (mut armings, mut locked, mut overtaken) = (Vec::new(), Vec::new(), Vec::new());
        for (wanted, answer) in wanted.into_iter().zip(answers) {
            let Wanted {
                sighting,
                row,
                reason,
                doubt: _,
            } = wanted;
            match answer {
                Adopted::Written(arming) => {
                    self.deps.metrics.adopted(reason);
                    tracing::debug!(task.key = %row.key, task.due = %row.due, reason, "adopted");
                    armings.push((row.key, arming));
                }
                Adopted::Overtaken => {
                    self.deps.metrics.dropped("overtaken", 1);
                    overtaken.push(sighting);
                }
                Adopted::Locked => locked.push(sighting),
                Adopted::Unfit(why) => self.unfit(&sighting.key, &why),
                Adopted::Refused(why) => self.not_adopted(&why),
            }
        }
        let written = armings.len();
        self.expect_adopted(armings);
        if !locked.is_empty() {
            self.candidates.put_back(locked, LOCKED_PAUSE);
        }
        Ok((written, overtaken))
    }

    /// Their keys are armed already. What is far ahead is the look-ahead's.
    fn expect_adopted(&self, armings: Vec<(TaskKey, Arming)>) {
        let now = self.deps.ledger.clock().now();
        let horizon = now.plus(self.deps.nudge.horizon);
        let mut soon = Vec::new();
        for (key, arming) in armings {
            let (due, arming) = (arming.due, Some(arming));
            if due <= now {
                let source = Source::Direct;
                self.queue.push(Signal {
                    key,
                    source,
                    arming,
                });
            } else if due <= horizon {
                soon.push(Alarm { key, due, arming });
            }
        }
        if !soon.is_empty() {
            self.deps.timer.expect(soon);
        }
    }

    /// A key was deleted: that cancels a task which was adopted from it, unless something was said about it since, and
    /// no other. It may wait for a retry, or behind a run.
    async fn withdraw(
        &self,
        key: &TaskKey,
        lookup: Option<Lookup>,
        heard: UnixMs,
    ) -> Result<(), LedgerError> {
        let now = self.deps.ledger.clock().now();
        let adopted = lookup.filter(|row| {
            let booked = row.booked();
            let waits = matches!(row.state, State::Pending | State::Waiting)
                || (row.state == State::Running && row.arming.due > now);
            waits && booked.is_a_keys() && is_younger(heard, &booked)
        });
        let withdrawn = match adopted {
            Some(row) => self.deps.ledger.withdraw(&row, heard).await?,
            None => false,
        };
        if withdrawn {
            self.deps.metrics.withdrawn();
            tracing::debug!(task.key = %key, "called off: its key was deleted");
        } else {
            self.deps.metrics.dropped("not_withdrawn", 1);
        }
        Ok(())
    }

    /// Keys that the table cannot hold are left alone, and touch no other. It stays so until somebody changes the
    /// table.
    fn unfit(&self, key: &TaskKey, why: &str) {
        self.deps.metrics.dropped("unfit_key", 1);
        if let Some(held_back) = self.deps.warnings.admit("unfit key") {
            tracing::warn!(
                task.class_method = key.class_method(),
                held_back,
                "a key {why}; it is not run, nor are others like it"
            );
        }
    }

    fn not_adopted(&self, why: &str) {
        self.deps.metrics.dropped("refused", 1);
        if let Some(held_back) = self.deps.failures.admit("adopt a key") {
            tracing::error!(error = why, held_back, "could not adopt a key");
        }
    }
}

/// The row for a key.
fn foundling(key: &TaskKey, seen: &Countdown, over: Option<Lookup>, now: UnixMs) -> Foundling {
    Foundling {
        key: key.clone(),
        due: seen.to_be_written(),
        heard: seen.heard.unwrap_or(now),
        // A key of ours that somebody gave another expiry leaves the task what it was.
        from_key: seen.meant.is_none(),
        over,
    }
}
