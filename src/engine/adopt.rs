//! Adoption: a key that some program armed with a bare `SETEX` gets its row, is moved, or is called off.

use std::sync::Arc;
use std::time::Duration;

use super::Shared;
use crate::ledger::{Adopted, Arming, Foundling, LedgerError, Standing};
use crate::task::{Adoption, Countdown, State, TaskKey, adoption};
use crate::timer::{Alarm, Seen, Sighting, Signal, Source};

/// Keys of one look-up.
const BATCH: usize = 512;

/// How long to wait when the ledger did not answer.
const OUTAGE_PAUSE: Duration = Duration::from_millis(500);

/// When a row that another session has locked is tried again.
const LOCKED_PAUSE: Duration = Duration::from_secs(1);

/// How long a stopping engine may take for the keys that wait.
const REST_TIMEOUT: Duration = Duration::from_secs(5);

/// A row to be written for a key, and why: for the metrics.
struct Wanted {
    sighting: Sighting,
    row: Foundling,
    reason: &'static str,
}

impl Shared {
    /// Handles sightings when their time has come, until the engine stops; then the rest at once, since nobody may
    /// hear of these keys again.
    pub(super) async fn adopt_until_stopped(self: Arc<Self>) {
        let ready = async || self.sightings.ready(BATCH).await;
        while let Some(batch) = self.stopping.run_until_cancelled(ready()).await {
            if let Err(error) = self.adopt(batch.clone()).await {
                self.ledger_failed("adopt keys", &error);
                // Doing it twice changes nothing.
                self.sightings.put_back(batch, OUTAGE_PAUSE);
                let pause = tokio::time::sleep(OUTAGE_PAUSE);
                self.stopping.run_until_cancelled(pause).await;
            }
        }
        let rest = async {
            for batch in self.sightings.take_all().chunks(BATCH) {
                if let Err(error) = self.adopt(batch.to_vec()).await {
                    return self.ledger_failed("adopt keys", &error);
                }
            }
        };
        // A daemon that cannot stop is worse: the next one goes through the keys that are still there.
        let _ = tokio::time::timeout(REST_TIMEOUT, rest).await;
    }

    /// Compares keys with the ledger, and writes what it lacks. Tells how many rows were written.
    pub(super) async fn adopt(&self, sightings: Vec<Sighting>) -> Result<usize, LedgerError> {
        if sightings.is_empty() {
            return Ok(0);
        }
        let keys: Vec<TaskKey> = sightings.iter().map(|seen| seen.key.clone()).collect();
        let standings = self.parts.ledger.look_up(&keys).await?;
        let now = self.parts.ledger.clock().now();
        let mut wanted = Vec::new();
        for (sighting, standing) in sightings.into_iter().zip(standings) {
            match sighting.seen {
                Seen::Armed(key) => {
                    let booked = standing.as_ref().map(Standing::booked);
                    let reason = match adoption(booked.as_ref(), &key, now) {
                        Adoption::Leave => {
                            self.parts.metrics.dropped("known", 1);
                            continue;
                        }
                        Adoption::Insert if key.alive_at.is_none() => "expired",
                        Adoption::Insert if key.heard => "expire",
                        Adoption::Insert => "scan",
                        Adoption::Move => "moved",
                        Adoption::Recreate => "again",
                    };
                    let row = Foundling {
                        key: sighting.key.clone(),
                        due: key.to_be_written(),
                        over: standing,
                    };
                    wanted.push(Wanted {
                        sighting,
                        row,
                        reason,
                    });
                }
                // Its event may be about the arming that the row is of, and late.
                Seen::Expired(_) if standing.is_some() => self.parts.metrics.dropped("known", 1),
                Seen::Expired(due) => wanted.push(Wanted {
                    row: Foundling {
                        key: sighting.key.clone(),
                        due: Countdown::expired(due).to_be_written(),
                        over: None,
                    },
                    sighting,
                    reason: "expired",
                }),
                Seen::Disarmed => self.withdraw(&sighting.key, standing).await?,
            }
        }
        self.write_wanted(wanted).await
    }

    async fn write_wanted(&self, wanted: Vec<Wanted>) -> Result<usize, LedgerError> {
        if wanted.is_empty() {
            return Ok(0);
        }
        let rows: Vec<Foundling> = wanted.iter().map(|wanted| wanted.row.clone()).collect();
        let answers = self.parts.ledger.adopt(&rows).await?;
        let (mut armings, mut locked) = (Vec::new(), Vec::new());
        for (wanted, answer) in wanted.into_iter().zip(answers) {
            let Wanted {
                sighting,
                row,
                reason,
            } = wanted;
            match answer {
                Adopted::Written(arming) => {
                    self.parts.metrics.adopted(reason);
                    tracing::debug!(task.key = %row.key, task.due = %row.due, reason, "adopted");
                    armings.push((row.key, arming));
                }
                Adopted::Overtaken => self.parts.metrics.dropped("overtaken", 1),
                Adopted::Locked => locked.push(sighting),
                Adopted::Refused(why) => self.not_adopted(&why),
            }
        }
        let written = armings.len();
        self.expect_adopted(armings);
        if !locked.is_empty() {
            self.sightings.put_back(locked, LOCKED_PAUSE);
        }
        Ok(written)
    }

    /// Their keys are armed already. What is far ahead is the look-ahead's.
    fn expect_adopted(&self, armings: Vec<(TaskKey, Arming)>) {
        let now = self.parts.ledger.clock().now();
        let horizon = now.plus(self.nudge.horizon);
        let mut soon = Vec::new();
        for (key, arming) in armings {
            let (due, arming) = (arming.due, Some(arming));
            if due <= now {
                let source = Source::Direct;
                self.intake.raise(Signal {
                    key,
                    source,
                    arming,
                });
            } else if due <= horizon {
                soon.push(Alarm { key, due, arming });
            }
        }
        if !soon.is_empty() {
            self.parts.timer.expect(soon);
        }
    }

    /// A key was deleted: that calls off a task which was adopted from it, and no other.
    async fn withdraw(&self, key: &TaskKey, standing: Option<Standing>) -> Result<(), LedgerError> {
        let pending = standing.filter(|row| {
            row.booked().is_a_keys() && matches!(row.state, State::Pending | State::Waiting)
        });
        let withdrawn = match pending {
            Some(row) => self.parts.ledger.withdraw(row.arming).await?,
            None => false,
        };
        if withdrawn {
            self.parts.metrics.withdrawn();
            tracing::debug!(task.key = %key, "called off: its key was deleted");
        } else {
            self.parts.metrics.dropped("not_withdrawn", 1);
        }
        Ok(())
    }

    /// Expired keys without any row: that they were armed was not heard, or is not yet written down. They are written
    /// next, and run then; whoever dispatches does not wait for that.
    pub(super) fn adopt_expired(&self, keys: impl IntoIterator<Item = TaskKey>, wait: Duration) {
        let now = self.parts.ledger.clock().now();
        for key in keys {
            let seen = match self.sightings.take(&key) {
                // What was seen of it alive says more; written as it was seen, another daemon that saw it, too, knows the
                // arming again.
                Some(Seen::Armed(seen)) if seen.meant.is_none() => Seen::Armed(Countdown {
                    due: seen.due.min(now),
                    ..seen
                }),
                Some(Seen::Expired(due)) => Seen::Expired(due),
                Some(Seen::Armed(_) | Seen::Disarmed) | None => Seen::Expired(now),
            };
            if !self.sightings.add(Sighting { key, seen }, wait) {
                self.parts.metrics.dropped("sighting_overflow", 1);
            }
        }
    }

    fn not_adopted(&self, why: &str) {
        self.parts.metrics.dropped("refused", 1);
        if let Some(held_back) = self.complaints.admit("adopt a key") {
            tracing::error!(error = why, held_back, "could not adopt a key");
        }
    }
}
