//! Manual claims: claims due tasks for a caller that does their work itself, instead of a handler.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::conditions::Conditions;
use super::lease::{self, Renewing};
use crate::handler::TaskContext;
use crate::ledger::{Claim, Claimant, Ledger, LedgerError, Settled, Settlement};
use crate::task::{Arming, Outcome, POISON_CRASHES, TaskKey, UnixMs, Verdict};
use crate::timer::{Alarm, ArmMode, Entries, Timer};

/// Pause before a settlement is repeated: its row is locked, or the ledger does not answer.
const PAUSE: Duration = Duration::from_millis(200);

/// Claims due tasks by hand. Leases, fencing and recurrence are those of the daemon.
pub struct ManualClaims {
    /// The whole ledger, for the contexts of tasks.
    pub(super) ledger: Arc<dyn Ledger>,
    pub(super) timer: Arc<dyn Timer>,
    pub(super) entries: Option<Arc<dyn Entries>>,
    pub(super) claimant: Claimant,
}

/// A task that this process has claimed. If it is neither completed nor released, it runs again when its lease expires.
pub struct TakenTask {
    claim: Claim,
    context: TaskContext,
}

impl TakenTask {
    /// Its key.
    pub fn key(&self) -> &TaskKey {
        &self.claim.key
    }

    /// The task as one line of JSON, as targets receive it.
    pub fn to_json_line(&self) -> String {
        self.context.to_json_line()
    }
}

/// How many tasks were settled as asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TakeReport {
    /// Completed.
    pub completed: usize,
    /// Claimed by another daemon, or created again, since they were taken: they run again.
    pub lost: usize,
}

impl ManualClaims {
    /// The length of a lease.
    pub fn lease(&self) -> Duration {
        self.claimant.lease
    }

    /// Claims those of `armings` that are pending, due and not leased. Returns them in the order of `armings`. Leaves to
    /// the daemon what needs its judgement: a task that is suspected of killing its daemon, an oversized payload, a
    /// missed occurrence, a broken recurrence, a task that starts after others.
    ///
    /// # Errors
    /// The ledger does not answer. Tasks whose claim was written all the same run again when their leases expire.
    ///
    /// # Cancel safety
    /// Not cancel safe: the leases of claimed tasks have to expire.
    pub async fn claim(&self, armings: &[Arming]) -> Result<Vec<TakenTask>, LedgerError> {
        let mut claims = self.ledger.claim(armings, &self.claimant).await?;
        let places: HashMap<&Arming, usize> = armings.iter().zip(0..).collect();
        claims.sort_by_key(|claim| places.get(&claim.lease.arming).copied());
        let now = self.ledger.clock().now();
        let (taken, left): (Vec<Claim>, Vec<Claim>) = claims
            .into_iter()
            .partition(|claim| can_be_taken(claim, now));
        if !left.is_empty() {
            let left: Vec<&Claim> = left.iter().collect();
            self.settle(&left, |_| Verdict::GiveBack).await?;
        }
        Ok(taken
            .into_iter()
            .map(|claim| self.taken(claim, now))
            .collect())
    }

    fn taken(&self, claim: Claim, now: UnixMs) -> TakenTask {
        let late = now.since(claim.due_at.max(claim.created));
        let context = TaskContext::new(
            claim.clone(),
            u64::try_from(late.as_millis()).unwrap_or(u64::MAX),
            None,
            Arc::clone(&self.ledger),
            CancellationToken::new(),
            None,
        );
        TakenTask { claim, context }
    }

    /// Extends the leases of these tasks, and stores what they have reported with
    /// [`TaskContext::progress`].
    ///
    /// # Errors
    /// The ledger does not answer.
    pub async fn renew(&self, taken: &[TakenTask]) -> Result<(), LedgerError> {
        let leases = taken
            .iter()
            .map(|TakenTask { claim, .. }| (claim.lease, Arc::clone(&claim.progress)));
        let leases: Vec<Renewing> = leases.collect();
        lease::renew(&*self.ledger, &leases, self.lease()).await?;
        Ok(())
    }

    /// Completes these tasks, as a successful run does: a recurring task continues with its next occurrence.
    ///
    /// # Errors
    /// The ledger does not answer for the length of a lease. The tasks run again.
    pub async fn complete(&self, taken: &[TakenTask]) -> Result<TakeReport, LedgerError> {
        let now = self.ledger.clock().now();
        let claims: Vec<&Claim> = taken.iter().map(|task| &task.claim).collect();
        let verdict = |claim: &Claim| match claim.occurrence(now) {
            Some(occurrence) => {
                occurrence.series_verdict(Verdict::Complete, &Outcome::Succeeded, now)
            }
            None => Verdict::Complete,
        };
        let settled = self.settle(&claims, verdict).await?;
        let mut report = TakeReport::default();
        let (mut ended, mut next) = (Vec::new(), Vec::new());
        for (claim, settled) in claims.into_iter().zip(settled) {
            match settled {
                Settled::Applied | Settled::Ended | Settled::ByHandler | Settled::Cancelled => {
                    report.completed += 1;
                }
                Settled::Superseded | Settled::Fenced | Settled::Locked => {
                    report.lost += 1;
                    continue;
                }
            }
            let alarm = |due| Alarm {
                key: claim.key.clone(),
                due,
                arming: None,
            };
            match (settled, verdict(claim)) {
                (Settled::Applied, Verdict::NextOccurrence { next: due, .. }) => {
                    next.push(alarm(due));
                }
                _ => ended.push(alarm(claim.due_at)),
            }
        }
        self.update_timer(&ended, &next).await;
        Ok(report)
    }

    /// Gives these tasks back: they are pending as before, and no attempt is counted.
    ///
    /// # Errors
    /// The ledger does not answer for the length of a lease. The tasks run again when their leases expire.
    pub async fn release(&self, taken: &[TakenTask]) -> Result<(), LedgerError> {
        let claims: Vec<&Claim> = taken.iter().map(|task| &task.claim).collect();
        self.settle(&claims, |_| Verdict::GiveBack).await?;
        Ok(())
    }

    /// Writes verdicts, as long as a lease lasts. Returns the results in the order of `claims`.
    async fn settle(
        &self,
        claims: &[&Claim],
        verdict: impl Fn(&Claim) -> Verdict,
    ) -> Result<Vec<Settled>, LedgerError> {
        let until = Instant::now() + self.lease();
        let mut results = vec![Settled::Locked; claims.len()];
        loop {
            let open: Vec<usize> = (0..claims.len())
                .filter(|place| results[*place] == Settled::Locked)
                .collect();
            if open.is_empty() {
                return Ok(results);
            }
            let settlements: Vec<Settlement> = open
                .iter()
                .map(|place| Settlement {
                    lease: claims[*place].lease,
                    verdict: verdict(claims[*place]),
                })
                .collect();
            match self.ledger.settle(&settlements).await {
                Ok(settled) => {
                    for (place, settled) in open.into_iter().zip(settled) {
                        results[place] = settled;
                    }
                    if Instant::now() >= until {
                        return Ok(results);
                    }
                }
                Err(error) if !error.is_transient() || Instant::now() >= until => {
                    return Err(error);
                }
                Err(error) => tracing::debug!(%error, "could not settle taken tasks; trying again"),
            }
            if results.contains(&Settled::Locked) {
                sleep(PAUSE).await;
            }
        }
    }

    /// Removes the entries of ended tasks, and arms the next occurrences. Without an answer, the audit of a daemon does.
    async fn update_timer(&self, ended: &[Alarm], next: &[Alarm]) {
        if let Some(entries) = self.entries.as_ref().filter(|_| !ended.is_empty())
            && let Err(error) = entries.settle(ended).await
        {
            tracing::debug!(%error, entries = ended.len(), "could not remove entries of taken tasks; an audit does");
        }
        if !next.is_empty()
            && let Err(error) = self.timer.arm(next, ArmMode::IfMissing).await
        {
            tracing::debug!(%error, keys = next.len(), "could not arm the next occurrences; the daemon finds them");
        }
    }
}

/// True if the task of this claim can be handed to a person or a program as it is.
fn can_be_taken(claim: &Claim, now: UnixMs) -> bool {
    let is_broken = matches!(claim.recurrence.as_deref(), Some(Err(_)));
    let is_missed = claim
        .occurrence(now)
        .is_some_and(|occurrence| occurrence.is_missed());
    claim.oversize.is_none()
        && claim.attempt.crashes < POISON_CRASHES
        && !is_broken
        && (!is_missed || claim.has_started_before())
        && Conditions::of(claim).is_none()
}
