//! Adoption: writes, moves or cancels the rows of keys that programs armed or deleted without a row of their own.

mod seniors;
mod writing;

use std::sync::Arc;
use std::time::Duration;

use crate::clock::LedgerClock;
use crate::engine::activity::Activity;
use crate::engine::candidates::Candidates;
use crate::engine::expired::adopt_expired;
use crate::engine::health::LedgerHealth;
use crate::engine::lifecycle::Lifecycle;
use crate::engine::queue::SignalQueue;
use crate::engine::reports::{Reporter, TaskWithdrawn, withdrawn_many};
use crate::handler::Router;
use crate::ledger::{
    Adoption, AdoptionRequest, Claims, LedgerError, Lookup, Withdrawal, Withdrawn,
};
use crate::membership::Membership;
use crate::task::{
    AdoptionDecision, Countdown, Origin, State, TaskKey, UnixMs, decide_adoption, decide_requested,
    is_younger,
};
use crate::telemetry::DropReason;
use crate::timer::{
    Acknowledgement, AdoptionCandidate, Cause, Entries, EntryState, Listening, Seen, Timer,
};

/// Maximum number of keys of one look-up.
const BATCH: usize = 1_024;

/// Pause when the ledger does not answer.
const OUTAGE_PAUSE: Duration = Duration::from_millis(500);

/// Timeout for inspecting keys again.
const INSPECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Time that a stopping engine spends on the waiting keys.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// A key that is gone this long before its due time or less may have expired rather than been deleted.
const WITHDRAW_AHEAD: Duration = Duration::from_secs(1);

/// A producer knows of a step of the ledger's clock after this time: it reads the clock each 30 s.
const STEP_KNOWN_AFTER: Duration = Duration::from_secs(60);

/// Maximum number of times a key is compared whose row changes meanwhile.
const ROUNDS_MAX: usize = 3;

/// A row to be written for a key, with the reason for the metrics.
struct Wanted {
    candidate: AdoptionCandidate,
    row: AdoptionRequest,
    reason: &'static str,
    /// Whether the key is to be inspected again first.
    doubt: Doubt,
}

impl Wanted {
    /// True if this is a key of ours that seems to expire earlier than its value says.
    fn is_shortened(&self) -> bool {
        matches!(self.candidate.seen, Seen::Armed(seen) if seen.meant.is_some())
    }

    /// When the evidence was heard, if the last change of its row may be newer.
    fn doubted_since(&self) -> Option<UnixMs> {
        match self.candidate.seen {
            Seen::Armed(seen) if self.doubt != Doubt::None => seen.heard,
            _ => None,
        }
    }
}

/// Doubt whether evidence is younger than the last change of its row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doubt {
    /// The evidence is younger by the clocks.
    None,
    /// The evidence counts unless a new inspection disproves it.
    Some,
    /// The evidence counts only if a new inspection confirms it.
    Much,
}

/// Maximum number of keys that one line of the log names.
const NAMED_MAX: usize = 10;

/// Writes rows for keys that programs armed with a bare `SETEX`.
pub struct Adopter {
    pub claims: Arc<dyn Claims>,
    pub adoption: Arc<dyn Adoption>,
    pub clock: LedgerClock,
    pub health: Arc<LedgerHealth>,
    pub timer: Arc<dyn Timer>,
    pub entries: Option<Arc<dyn Entries>>,
    pub listening: Option<Arc<dyn Listening>>,
    /// How far ahead the timer is to know tasks.
    pub horizon: Duration,
    pub membership: Arc<dyn Membership>,
    pub router: Arc<Router>,
    pub lifecycle: Lifecycle,
    pub reporter: Arc<Reporter>,
    pub activity: Arc<Activity>,
    pub queue: Arc<SignalQueue>,
    pub candidates: Arc<Candidates>,
}

impl Adopter {
    /// Handles adoption candidates when they are due, until the engine stops. Then handles the rest at once, since
    /// these keys may never be heard of again.
    pub async fn run(self: Arc<Self>) {
        let ready = async || self.candidates.ready(BATCH).await;
        let activity = &self.activity;
        while let Some(ready) = self.lifecycle.stopping.run_until_cancelled(ready()).await {
            let batch = self.leave_to_seniors(ready).await;
            let adopted = activity.pass(Cause::Work, self.adopt(batch.clone()));
            if let Err(error) = adopted.await {
                self.health.failed("adopt keys", &error);
                // Adoption is idempotent.
                self.candidates.put_back(batch, OUTAGE_PAUSE);
                let pause = tokio::time::sleep(OUTAGE_PAUSE);
                self.lifecycle.stopping.run_until_cancelled(pause).await;
            }
        }
        // A daemon that cannot stop is worse: the next daemon goes through the keys that still exist.
        let mut rest = self.candidates.take_all();
        let _ = tokio::time::timeout(STOP_TIMEOUT, self.adopt_rest(&mut rest)).await;
        let lookups = &self.lifecycle.lookups;
        lookups.close();
        let _ = tokio::time::timeout(STOP_TIMEOUT, lookups.wait()).await;
        // Expired keys that no worker has looked up may have no row.
        let mut expired = self.queue.take_expired();
        expired.retain(|key| self.router.adopts(key));
        let now = self.clock.now();
        adopt_expired(&self.candidates, expired, now, Duration::ZERO);
        // Those whose rows were locked, too.
        rest.extend(self.candidates.take_all());
        let _ = tokio::time::timeout(STOP_TIMEOUT, self.adopt_rest(&mut rest)).await;
        rest.extend(self.candidates.take_all());
        if !rest.is_empty() {
            let named = rest.iter().take(NAMED_MAX);
            let keys: Vec<&str> = named.map(|left| left.key.as_str()).collect();
            tracing::warn!(
                keys = rest.len(),
                some = ?keys,
                "stopping without having written what became of keys: those that have expired and have no row do not run"
            );
        }
    }

    /// Handles candidates, and removes those that are handled.
    async fn adopt_rest(&self, rest: &mut Vec<AdoptionCandidate>) {
        while !rest.is_empty() {
            let batch = &rest[..rest.len().min(BATCH)];
            let handled = batch.len();
            if let Err(error) = self.adopt(batch.to_vec()).await {
                return self.health.failed("adopt keys", &error);
            }
            rest.drain(..handled);
        }
    }

    /// Compares keys with the ledger, and writes missing rows. Returns the number of rows written.
    pub async fn adopt(
        &self,
        mut candidates: Vec<AdoptionCandidate>,
    ) -> Result<usize, LedgerError> {
        let (mut written, mut deleted) = (0, Vec::new());
        for _ in 0..ROUNDS_MAX {
            if candidates.is_empty() {
                break;
            }
            let (wanted, withdrawals) = self.compare(candidates).await?;
            deleted.extend(withdrawals);
            let wanted = self.drop_doubtful(wanted).await;
            let rows;
            (rows, candidates) = self.write_wanted(wanted).await?;
            written += rows;
        }
        // Behind the new keys, which may fall due soon.
        self.withdraw(deleted).await?;
        Ok(written)
    }

    /// Compares keys with the ledger. Returns the rows to be written, and the tasks of deleted keys.
    async fn compare(
        &self,
        candidates: Vec<AdoptionCandidate>,
    ) -> Result<(Vec<Wanted>, Vec<(AdoptionCandidate, Withdrawal)>), LedgerError> {
        let keys: Vec<TaskKey> = candidates.iter().map(|seen| seen.key.clone()).collect();
        let lookups = self.claims.look_up(&keys).await?;
        let now = self.clock.now();
        let (mut wanted, mut known, mut deleted) = (Vec::new(), Vec::new(), Vec::new());
        for (candidate, lookup) in candidates.into_iter().zip(lookups) {
            match candidate.seen {
                Seen::Requested { due, heard } => {
                    let booked = lookup.as_ref().map(Lookup::booked);
                    match decide_requested(booked.as_ref(), due, heard) {
                        AdoptionDecision::Leave => {
                            self.reporter.metrics.dropped(DropReason::Known, 1);
                            let state = lookup.as_ref().map_or(EntryState::Ended, entry_state);
                            known.push(acknowledgement(&candidate, state));
                        }
                        decision => wanted.push(Wanted {
                            row: AdoptionRequest {
                                key: candidate.key.clone(),
                                due,
                                heard,
                                from_key: true,
                                is_entry: self.counts_absence(),
                                over: lookup,
                                payload: candidate.payload.as_deref().map(str::to_owned),
                            },
                            candidate,
                            reason: match decision {
                                AdoptionDecision::Move => "moved",
                                AdoptionDecision::Recreate => "again",
                                AdoptionDecision::Insert | AdoptionDecision::Leave => "requested",
                            },
                            doubt: Doubt::None,
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
                    let doubt = match &booked {
                        Some(row) if key.needs_inspection(row, now) => {
                            match key.is_surely_younger(row) {
                                true => Doubt::Some,
                                false => Doubt::Much,
                            }
                        }
                        _ => Doubt::None,
                    };
                    wanted.push(Wanted {
                        row: adoption_request(&candidate.key, &key, lookup, now),
                        candidate,
                        reason,
                        doubt,
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
                    doubt: Doubt::None,
                }),
                Seen::Disarmed(heard) => match self.withdrawal(lookup, heard, now) {
                    Some(withdrawal) => deleted.push((candidate, withdrawal)),
                    None => self.reporter.metrics.dropped(DropReason::NotWithdrawn, 1),
                },
            }
        }
        self.acknowledge(known.into_iter().flatten().collect())
            .await;
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

    /// Inspects keys again that may have been armed before the last change of their rows. If that change reached Redis,
    /// as a deletion or as a key of ours, these keys are gone.
    async fn drop_doubtful(&self, wanted: Vec<Wanted>) -> Vec<Wanted> {
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
        let found = self.inspect(&keys, since).await;
        let mut found = found.map(Vec::into_iter);
        let is_accepted = |wanted: &Wanted| {
            if wanted.doubt == Doubt::None {
                return true;
            }
            match found.as_mut().map(|found| found.next().flatten()) {
                None => wanted.doubt == Doubt::Some,
                Some(found) => match (found, wanted.candidate.seen) {
                    (Some(found), Seen::Armed(seen)) => found.meant == seen.meant,
                    _ => false,
                },
            }
        };
        let (accepted, out_of_date): (Vec<Wanted>, Vec<Wanted>) =
            wanted.into_iter().partition(is_accepted);
        self.reporter
            .metrics
            .dropped(DropReason::OutOfDate, out_of_date.len() as u64);
        accepted
    }

    /// Inspects keys again. `None` if the server does not answer in time, or cannot tell.
    async fn inspect(&self, keys: &[TaskKey], since: UnixMs) -> Option<Vec<Option<Countdown>>> {
        let look = self.listening.as_ref()?.inspect(keys, since);
        tokio::time::timeout(INSPECT_TIMEOUT, look).await.ok()?.ok()
    }

    /// True if a missing entry may mean that a program removed it.
    fn counts_absence(&self) -> bool {
        let entries = self.entries.as_ref();
        entries.is_some_and(|entries| entries.counts_absence())
    }

    /// Cancels the tasks of deleted keys. Those whose rows are locked are tried again later.
    async fn withdraw(
        &self,
        deleted: Vec<(AdoptionCandidate, Withdrawal)>,
    ) -> Result<(), LedgerError> {
        if deleted.is_empty() {
            return Ok(());
        }
        let ahead = match self.entries {
            Some(_) => Duration::ZERO,
            None => WITHDRAW_AHEAD,
        };
        let (candidates, withdrawals): (Vec<AdoptionCandidate>, Vec<Withdrawal>) =
            deleted.into_iter().unzip();
        let answers = self.adoption.withdraw(&withdrawals, ahead).await?;
        let cancelled = answers
            .iter()
            .filter(|answer| **answer == Withdrawn::Cancelled);
        withdrawn_many(&self.reporter, cancelled.count());
        let mut locked = Vec::new();
        for (candidate, answer) in candidates.into_iter().zip(answers) {
            match answer {
                Withdrawn::Cancelled => {
                    let key = &candidate.key;
                    TaskWithdrawn { key }.emit(&self.reporter);
                }
                Withdrawn::Left => self.reporter.metrics.dropped(DropReason::NotWithdrawn, 1),
                Withdrawn::Locked => locked.push(candidate),
            }
        }
        if !locked.is_empty() {
            self.candidates.put_back(locked, writing::LOCKED_PAUSE);
        }
        Ok(())
    }

    /// The withdrawal of the task of a deleted key, if the task was adopted from that key and has not changed since. The
    /// task may wait for a retry, or behind a run.
    fn withdrawal(&self, lookup: Option<Lookup>, heard: UnixMs, now: UnixMs) -> Option<Withdrawal> {
        let over = lookup.filter(|row| {
            let booked = row.booked();
            let waits = matches!(row.state, State::Pending | State::Waiting)
                || (row.state == State::Running && row.arming.due > now);
            // An entry that was never seen is not missing.
            let was_seen = booked.origin == Origin::Entry || !self.counts_absence();
            let is_younger = is_younger(heard, &booked) || booked.is_ahead_of(now);
            waits && booked.is_from_key() && was_seen && is_younger
        })?;
        Some(Withdrawal { over, heard })
    }
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

/// The answer to an entry of a program; `None` for a key, which needs none.
fn acknowledgement(candidate: &AdoptionCandidate, state: EntryState) -> Option<Acknowledgement> {
    match candidate.seen {
        Seen::Requested { due, .. } => Some(Acknowledgement {
            key: candidate.key.clone(),
            requested: due,
            state,
        }),
        Seen::Armed(_) | Seen::Expired(_) | Seen::Disarmed(_) => None,
    }
}

/// What becomes of an entry whose task has this row.
fn entry_state(row: &Lookup) -> EntryState {
    match row.state.is_finished() {
        true => EntryState::Ended,
        false => EntryState::Pending(row.due_at),
    }
}
