//! Adoption: writes, moves or cancels the rows of keys that programs armed or deleted without a row of their own.

mod comparing;
mod higher_ranked;
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
use crate::engine::reports::{Reporter, TaskCancelledByKey, many_cancelled_by_key};
use crate::handler::Router;
use crate::ledger::{
    Adoption, AdoptionRequest, CancelByKey, CancelByKeyAnswer, Claims, LedgerError,
};
use crate::membership::Membership;
use crate::task::{Countdown, TaskKey, UnixMs};
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
const CANCEL_BY_KEY_AHEAD: Duration = Duration::from_secs(1);

/// Maximum number of times a key is compared whose row changes meanwhile.
const ROUNDS_MAX: usize = 3;

/// A row to be written for a key, with the reason for the metrics.
struct Wanted {
    candidate: AdoptionCandidate,
    row: AdoptionRequest,
    reason: &'static str,
    /// Whether the key is to be inspected again first.
    recheck: Recheck,
}

impl Wanted {
    /// True if this is a key of ours that seems to expire earlier than its value says.
    fn is_shortened(&self) -> bool {
        matches!(self.candidate.seen, Seen::Armed(seen) if seen.meant.is_some())
    }

    /// When the evidence was heard, if the last change of its row may be newer.
    fn recheck_since(&self) -> Option<UnixMs> {
        match self.candidate.seen {
            Seen::Armed(seen) if self.recheck != Recheck::No => seen.heard,
            _ => None,
        }
    }
}

/// Whether a key is inspected again: its evidence may be older than the last change of its row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Recheck {
    /// The evidence is younger by the clocks.
    No,
    /// The evidence counts unless a new inspection disproves it.
    UnlessDisproved,
    /// The evidence counts only if a new inspection confirms it.
    IfConfirmed,
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
            let batch = self.leave_to_higher_ranked(ready).await;
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
            let (wanted, cancellations) = self.compare(candidates).await?;
            deleted.extend(cancellations);
            let wanted = self.drop_outdated(wanted).await;
            let rows;
            (rows, candidates) = self.write_wanted(wanted).await?;
            written += rows;
        }
        // Behind the new keys, which may fall due soon.
        self.cancel_by_key(deleted).await?;
        Ok(written)
    }

    /// Inspects keys again that may have been armed before the last change of their rows. If that change reached Redis,
    /// as a deletion or as a key of ours, these keys are gone.
    async fn drop_outdated(&self, wanted: Vec<Wanted>) -> Vec<Wanted> {
        let rechecked = wanted
            .iter()
            .filter(|wanted| wanted.recheck != Recheck::No)
            .map(|wanted| wanted.row.key.clone());
        let keys: Vec<TaskKey> = rechecked.collect();
        if keys.is_empty() {
            return wanted;
        }
        let heard = wanted.iter().filter_map(|wanted| wanted.recheck_since());
        let since = heard.min().unwrap_or_default();
        let found = self.inspect(&keys, since).await;
        let mut found = found.map(Vec::into_iter);
        let is_accepted = |wanted: &Wanted| {
            if wanted.recheck == Recheck::No {
                return true;
            }
            match found.as_mut().map(|found| found.next().flatten()) {
                None => wanted.recheck == Recheck::UnlessDisproved,
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

    /// True if a missing entry of this task may mean that a program removed it.
    fn counts_absence_of(&self, key: &TaskKey) -> bool {
        let entries = self.entries.as_ref();
        entries.is_some_and(|entries| entries.counts_absence(Some(key)))
    }

    /// Cancels the tasks of deleted keys. Those whose rows are locked are tried again later.
    async fn cancel_by_key(
        &self,
        deleted: Vec<(AdoptionCandidate, CancelByKey)>,
    ) -> Result<(), LedgerError> {
        let has_entry = |(deleted, _): &(AdoptionCandidate, CancelByKey)| {
            let entries = self.entries.as_ref();
            entries.is_some_and(|entries| entries.has(Some(&deleted.key)))
        };
        let (of_entries, of_keys) = deleted.into_iter().partition(has_entry);
        self.cancel_ahead(of_entries, Duration::ZERO).await?;
        self.cancel_ahead(of_keys, CANCEL_BY_KEY_AHEAD).await
    }

    /// Cancels those of these tasks that fall due later than this from now.
    async fn cancel_ahead(
        &self,
        deleted: Vec<(AdoptionCandidate, CancelByKey)>,
        ahead: Duration,
    ) -> Result<(), LedgerError> {
        if deleted.is_empty() {
            return Ok(());
        }
        let (candidates, cancellations): (Vec<AdoptionCandidate>, Vec<CancelByKey>) =
            deleted.into_iter().unzip();
        let answers = self.adoption.cancel_by_key(&cancellations, ahead).await?;
        let cancelled = answers
            .iter()
            .filter(|answer| **answer == CancelByKeyAnswer::Cancelled);
        many_cancelled_by_key(&self.reporter, cancelled.count());
        let mut locked = Vec::new();
        for (candidate, answer) in candidates.into_iter().zip(answers) {
            match answer {
                CancelByKeyAnswer::Cancelled => {
                    let key = &candidate.key;
                    TaskCancelledByKey { key }.emit(&self.reporter);
                }
                CancelByKeyAnswer::Left => self
                    .reporter
                    .metrics
                    .dropped(DropReason::NotCancelledByKey, 1),
                CancelByKeyAnswer::Locked => locked.push(candidate),
            }
        }
        if !locked.is_empty() {
            self.candidates.put_back(locked, writing::LOCKED_PAUSE);
        }
        Ok(())
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
