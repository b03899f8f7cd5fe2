//! Compares adoption candidates with the rows of their keys. Writes nothing.

use std::time::Duration;

use super::{Adopter, Recheck, Wanted, acknowledgement};
use crate::ledger::{AdoptionRequest, CancelByKey, LedgerError, Lookup};
use crate::task::{
    AdoptionDecision, Countdown, READ_TO_ROW_MAX, Removal, State, TaskKey, UnixMs, decide_adoption,
    decide_requested, is_younger, may_be_replaced,
};
use crate::telemetry::DropReason;
use crate::timer::{AdoptionCandidate, Alarm, EntryState, Seen};

/// A producer knows of a step of the ledger's clock after this time: it reads the clock each 30 s.
const STEP_KNOWN_AFTER: Duration = Duration::from_secs(60);

impl Adopter {
    /// Compares keys with the ledger. Returns the rows to be written, and the tasks of deleted keys.
    pub(super) async fn compare(
        &self,
        candidates: Vec<AdoptionCandidate>,
    ) -> Result<(Vec<Wanted>, Vec<(AdoptionCandidate, CancelByKey)>), LedgerError> {
        let keys: Vec<TaskKey> = candidates.iter().map(|seen| seen.key.clone()).collect();
        let lookups = self.claims.look_up(&keys).await?;
        let now = self.clock.now();
        let (mut wanted, mut known) = (Vec::new(), Vec::new());
        let (mut deleted, mut lost) = (Vec::new(), Vec::new());
        for (candidate, lookup) in candidates.into_iter().zip(lookups) {
            match candidate.seen {
                Seen::Requested { due, heard } => {
                    let booked = lookup.as_ref().map(Lookup::booked);
                    let is_unclear = self.counts_absence_of(&candidate.key)
                        && (booked.is_some_and(|row| may_be_replaced(&row, heard))
                            || now.since(heard) > READ_TO_ROW_MAX);
                    match decide_requested(booked.as_ref(), due, heard) {
                        AdoptionDecision::Leave => {
                            self.reporter.metrics.dropped(DropReason::Known, 1);
                            let state = lookup.as_ref().map_or(EntryState::Ended, entry_state);
                            known.push(acknowledgement(&candidate, state));
                        }
                        _ if is_unclear => {
                            self.reporter.metrics.dropped(DropReason::OutOfDate, 1);
                            known.push(acknowledgement(&candidate, EntryState::Unclear));
                        }
                        decision => wanted.push(Wanted {
                            row: AdoptionRequest {
                                key: candidate.key.clone(),
                                due,
                                heard,
                                from_key: true,
                                is_entry: self.counts_absence_of(&candidate.key),
                                over: lookup,
                                payload: candidate.payload.as_deref().map(str::to_owned),
                            },
                            candidate,
                            reason: match decision {
                                AdoptionDecision::Move => "moved",
                                AdoptionDecision::Recreate => "again",
                                AdoptionDecision::Insert | AdoptionDecision::Leave => "requested",
                            },
                            recheck: Recheck::No,
                        }),
                    }
                }
                Seen::Armed(key) => {
                    let booked = lookup.as_ref().map(Lookup::booked);
                    let reason = match decide_adoption(booked.as_ref(), &key, now) {
                        AdoptionDecision::Leave => {
                            self.reporter.metrics.dropped(DropReason::Known, 1);
                            continue;
                        }
                        AdoptionDecision::Insert if key.alive_at.is_none() => "expired",
                        AdoptionDecision::Insert if key.heard.is_some() => "expire",
                        AdoptionDecision::Insert => "scan",
                        AdoptionDecision::Move => "moved",
                        AdoptionDecision::Recreate => "again",
                    };
                    let recheck = match &booked {
                        Some(row) if key.needs_inspection(row, now) => {
                            match key.is_surely_younger(row) {
                                true => Recheck::UnlessDisproved,
                                false => Recheck::IfConfirmed,
                            }
                        }
                        _ => Recheck::No,
                    };
                    wanted.push(Wanted {
                        row: adoption_request(&candidate.key, &key, lookup, now),
                        candidate,
                        reason,
                        recheck,
                    });
                }
                // The event may be a late one about the row's own arming.
                Seen::Expired(_) if lookup.is_some() => {
                    self.reporter.metrics.dropped(DropReason::Known, 1)
                }
                Seen::Expired(due) => wanted.push(Wanted {
                    row: adoption_request(&candidate.key, &Countdown::expired(due, due), None, now),
                    candidate,
                    reason: "expired",
                    recheck: Recheck::No,
                }),
                Seen::Disarmed(removal) => {
                    lost.extend(lost_entry(&candidate.key, lookup.as_ref(), removal, now));
                    match self.withdrawal(&candidate.key, lookup, removal, now) {
                        Some(withdrawal) => deleted.push((candidate, withdrawal)),
                        None => self
                            .reporter
                            .metrics
                            .dropped(DropReason::NotCancelledByKey, 1),
                    }
                }
            }
        }
        self.acknowledge(known.into_iter().flatten().collect())
            .await;
        self.restore(lost).await;
        if wanted.iter().any(Wanted::is_shortened) && self.has_clock_stepped().await? {
            let before = wanted.len();
            wanted.retain(|wanted| !wanted.is_shortened());
            let dropped = (before - wanted.len()) as u64;
            self.reporter
                .metrics
                .dropped(DropReason::OutOfDate, dropped);
        }
        Ok((wanted, deleted))
    }

    /// True if the ledger's clock has stepped lately. A key of ours that was armed by the former time, or is read by it,
    /// seems to have another expiry than its value says.
    async fn has_clock_stepped(&self) -> Result<bool, LedgerError> {
        self.health.sync_clock().await?;
        let clock = &self.clock;
        Ok(clock.has_stepped_within(STEP_KNOWN_AFTER))
    }

    /// The withdrawal of the task of a deleted key, if the task was adopted from that key and has not changed since. The
    /// task may wait for a retry, or behind a run.
    fn withdrawal(
        &self,
        key: &TaskKey,
        lookup: Option<Lookup>,
        removal: Removal,
        now: UnixMs,
    ) -> Option<CancelByKey> {
        let heard = removal.heard;
        let over = lookup.filter(|row| {
            let booked = row.booked();
            let was_seen = row.is_removed_with_entry(removal) || !self.counts_absence_of(key);
            let is_younger = is_younger(heard, &booked) || booked.is_ahead_of(now);
            waits(row, now) && booked.is_from_key() && was_seen && is_younger
        })?;
        Some(CancelByKey { over, heard })
    }
}

/// True if the task waits for a start, maybe that of a retry, or behind a run.
fn waits(row: &Lookup, now: UnixMs) -> bool {
    row.state.is_pending() || (row.state == State::Running && row.arming.due > now)
}

/// The missing entry of a task that waits, if its set may have lost it.
fn lost_entry(key: &TaskKey, row: Option<&Lookup>, missing: Removal, now: UnixMs) -> Option<Alarm> {
    let row = row.filter(|row| waits(row, now) && row.may_have_lost_entry(missing))?;
    Some(Alarm {
        key: key.clone(),
        due: row.due_at,
        arming: Some(row.arming),
    })
}

/// The adoption request for a key.
fn adoption_request(
    key: &TaskKey,
    seen: &Countdown,
    over: Option<Lookup>,
    now: UnixMs,
) -> AdoptionRequest {
    AdoptionRequest {
        key: key.clone(),
        due: seen.row_due(),
        // What is heard after a scan found the key is younger, also before the row is written. A late event may be older
        // than the row, but the key was there when it was inspected.
        heard: match seen.late {
            true => seen.alive_at.or(seen.heard),
            false => seen.heard.or(seen.alive_at),
        }
        .unwrap_or(now),
        // A key of ours that a program gave another expiry does not change the origin of the task.
        from_key: seen.meant.is_none(),
        is_entry: false,
        over,
        payload: None,
    }
}

/// What becomes of an entry whose task has this row.
fn entry_state(row: &Lookup) -> EntryState {
    match row.state.is_finished() {
        true => EntryState::Ended,
        false => EntryState::Pending(row.due_at),
    }
}
