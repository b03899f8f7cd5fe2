//! Leases of this process: renewed while their runs last, given up in time when renewal fails.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::health::LedgerHealth;
use crate::ledger::{Claim, Claims, LatestProgress, Lease, LedgerError, Owner, Renewal};
use crate::task::{Arming, TaskKey};

/// All leases of this process, each from its claim until its settlement is written.
#[derive(Debug)]
pub struct Leases {
    length: Duration,
    entries: Mutex<HashMap<Lease, Leased>>,
    /// Armings whose last run was ended because its row stayed locked, and that run's lease.
    locked_out: Mutex<HashMap<Arming, Lease>>,
}

/// Maximum number of locked-out armings remembered. With more, the cause is not a few programs.
const LOCKED_OUT_MAX: usize = 1024;

/// Maximum number of tasks named in the log when runs are ended.
const NAMED_MAX: usize = 8;

#[derive(Debug)]
struct Leased {
    /// Time just before the statement was sent that took or last renewed the lease.
    since: Instant,
    /// Ends the run.
    ended: CancellationToken,
    /// True if another session had locked the row at the last renewal.
    locked: bool,
    key: TaskKey,
    progress: Arc<LatestProgress>,
}

/// A run that was ended because its lease could not be renewed.
struct Overdue {
    lease: Lease,
    key: TaskKey,
    locked: bool,
}

impl Leases {
    /// Creates an empty set of leases that each last `length`.
    pub fn new(length: Duration) -> Self {
        Self {
            length,
            entries: Mutex::default(),
            locked_out: Mutex::default(),
        }
    }

    /// Adds a lease. The returned token is cancelled when the run has to end.
    pub fn add(&self, claim: &Claim) -> CancellationToken {
        let ended = CancellationToken::new();
        self.entries().insert(
            claim.lease,
            Leased {
                since: claim.claimed,
                ended: ended.clone(),
                locked: false,
                key: claim.key.clone(),
                progress: Arc::clone(&claim.progress),
            },
        );
        ended
    }

    /// Removes leases whose settlement is written, or never will be.
    pub fn forget<'a>(&self, leases: impl IntoIterator<Item = &'a Lease>) {
        let mut entries = self.entries();
        for lease in leases {
            entries.remove(lease);
        }
    }

    /// The row and owner of each lease.
    pub fn claims(&self) -> HashSet<(u64, Owner)> {
        let entries = self.entries();
        entries
            .keys()
            .map(|lease| (lease.arming.row, lease.owner))
            .collect()
    }

    /// Number of leases.
    pub fn len(&self) -> usize {
        self.entries().len()
    }

    /// Ends every run.
    pub fn interrupt_all(&self) {
        self.entries()
            .values()
            .for_each(|entry| entry.ended.cancel());
    }

    /// Leases to be renewed: those of which a third has passed.
    fn due_for_renewal(&self) -> Vec<(Lease, Arc<LatestProgress>)> {
        let due = self.length / 3;
        self.entries()
            .iter()
            .filter(|(_, entry)| entry.since.elapsed() >= due)
            .map(|(lease, entry)| (*lease, Arc::clone(&entry.progress)))
            .collect()
    }

    fn renewed(&self, renewals: impl IntoIterator<Item = (Lease, Renewal)>, sent: Instant) {
        let mut entries = self.entries();
        for (lease, renewal) in renewals {
            match (renewal, entries.get_mut(&lease)) {
                (Renewal::Held, Some(entry)) => {
                    entry.since = sent;
                    entry.locked = false;
                }
                (Renewal::Lost, Some(entry)) => entry.ended.cancel(),
                (Renewal::Locked, Some(entry)) => entry.locked = true,
                (_, None) => {}
            }
        }
    }

    /// Ends the runs whose lease is about to expire, whether or not the ledger answers: on the monotonic clock, with a
    /// tenth of the lease to spare.
    fn end_overdue(&self) -> Vec<Overdue> {
        let limit = self.length - self.length / 10;
        let entries = self.entries();
        let overdue = entries
            .iter()
            .filter(|(_, entry)| entry.since.elapsed() >= limit && !entry.ended.is_cancelled());
        overdue
            .map(|(lease, entry)| {
                entry.ended.cancel();
                Overdue {
                    lease: *lease,
                    key: entry.key.clone(),
                    locked: entry.locked,
                }
            })
            .collect()
    }

    /// True if this interrupted run and the run before it were both ended because their row stayed locked. Once may be
    /// an unrelated lock. Twice, the task's own program holds the lock, and the task would be run again for ever.
    pub fn is_locked_out_again(&self, lease: &Lease) -> bool {
        let was_locked = self
            .entries()
            .get(lease)
            .is_some_and(|entry| entry.locked && entry.ended.is_cancelled());
        let mut locked_out = self.locked_out();
        if !was_locked {
            locked_out.remove(&lease.arming);
            return false;
        }
        if locked_out.len() >= LOCKED_OUT_MAX {
            locked_out.clear();
        }
        let first = *locked_out.entry(lease.arming).or_insert(*lease);
        first != *lease
    }

    fn locked_out(&self) -> MutexGuard<'_, HashMap<Arming, Lease>> {
        self.locked_out
            .lock()
            .expect("nothing panics while holding them")
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<Lease, Leased>> {
        self.entries
            .lock()
            .expect("nothing panics while holding the leases")
    }
}

/// Renews the leases of this process, and ends runs whose lease is about to expire.
pub struct LeaseKeeper {
    /// The leases.
    pub leases: Arc<Leases>,
    pub claims: Arc<dyn Claims>,
    pub health: Arc<LedgerHealth>,
}

impl LeaseKeeper {
    /// Renews leases and ends overdue runs until dropped. The two loops are concurrent, since a renewal that hangs must
    /// not delay the end of a run.
    pub async fn run(self) {
        let tick =
            (self.leases.length / 20).clamp(Duration::from_millis(50), Duration::from_secs(1));
        let renew = async {
            loop {
                tokio::time::sleep(tick).await;
                self.renew_due().await;
            }
        };
        let end = async {
            loop {
                tokio::time::sleep(tick).await;
                let ended = self.leases.end_overdue();
                self.log_ended(&ended);
            }
        };
        tokio::join!(renew, end);
    }

    fn log_ended(&self, ended: &[Overdue]) {
        if ended.is_empty() {
            return;
        }
        tracing::warn!(
            runs = ended.len(),
            "could not renew leases in time: their runs are ended, and their tasks run again"
        );
        for Overdue { lease, key, .. } in ended.iter().filter(|run| run.locked).take(NAMED_MAX) {
            tracing::warn!(task.class_method = key.class_method(), task.id = %lease.arming, "run ended: another session, perhaps its own program's, kept its row locked for as long as its lease");
        }
    }

    async fn renew_due(&self) {
        let leases = self.leases.due_for_renewal();
        if leases.is_empty() {
            return;
        }
        let sent = Instant::now();
        match renew(&*self.claims, &leases, self.leases.length).await {
            Ok(renewals) => self.leases.renewed(renewals, sent),
            Err(error) => self.health.failed("renew leases", &error),
        }
    }
}

/// A lease to be renewed, and what its run reports.
pub type Renewing = (Lease, Arc<LatestProgress>);

/// Renews leases: those whose runs have reported progress since the last renewal in one statement with it, the rest in another.
/// Leases whose progress could not be written are renewed without it.
///
/// # Errors
/// The ledger does not answer, or refuses. Progress that was not written is written with the next renewal.
pub async fn renew(
    claims: &dyn Claims,
    leases: &[Renewing],
    length: Duration,
) -> Result<Vec<(Lease, Renewal)>, LedgerError> {
    let (mut silent, mut latest, mut reports) = (Vec::new(), Vec::new(), Vec::new());
    for (lease, progress) in leases {
        match progress.take() {
            Some(report) => {
                latest.push(progress);
                reports.push((*lease, report));
            }
            None => silent.push(*lease),
        }
    }
    let reported = match reports.is_empty() {
        true => Ok(Vec::new()),
        false => claims.report(&reports, length).await,
    };
    for (at, (latest, (_, progress))) in latest.into_iter().zip(&reports).enumerate() {
        let renewal = reported.as_ref().ok().and_then(|renewals| renewals.get(at));
        if renewal != Some(&Renewal::Held) {
            latest.give_back(progress.clone());
        }
    }
    let reporting = reports.into_iter().map(|(lease, _)| lease);
    let mut renewed: Vec<(Lease, Renewal)> = Vec::with_capacity(leases.len());
    match reported {
        Ok(renewals) => renewed.extend(reporting.zip(renewals)),
        Err(error) => {
            if error.is_about_a_row() {
                tracing::warn!(%error, "could not store the progress of runs: their leases are renewed without it");
            }
            silent.extend(reporting);
        }
    }
    if !silent.is_empty() {
        let renewals = claims.renew(&silent, length).await?;
        renewed.extend(silent.into_iter().zip(renewals));
    }
    Ok(renewed)
}
