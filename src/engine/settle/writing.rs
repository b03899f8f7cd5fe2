//! Writes settlements: waits out outages, and finds the rows that a batch is refused for.

use super::{PAUSE, Settler};
use crate::ledger::{LedgerError, Settled, Settlement};
use crate::task::Verdict;

/// Maximum number of refused statements in one batch before the rest of it waits.
const REFUSALS_MAX: usize = 16;

impl Settler {
    /// Writes settlements, and waits out an outage. A row that cannot be written now yields [`Settled::Locked`],
    /// whether another session has locked it or the ledger refuses the statement. `None` means that the ledger refuses
    /// the data for good; the lease will expire.
    ///
    /// A refused batch is halved: one row may be the cause, and the others must not wait for it.
    pub(super) async fn write(&self, settlements: &[Settlement]) -> Vec<Option<Settled>> {
        let mut results = vec![Some(Settled::Locked); settlements.len()];
        let (mut refusals, mut parts) = (0, Vec::new());
        if !settlements.is_empty() {
            parts.push(0..settlements.len());
        }
        while let Some(part) = parts.pop() {
            let error = match self.write_through_outages(&settlements[part.clone()]).await {
                Ok(settled) => {
                    for (result, settled) in results[part].iter_mut().zip(settled) {
                        *result = Some(settled);
                    }
                    continue;
                }
                Err(error) => error,
            };
            if !error.is_about_data() {
                self.health.failed("settle runs", &error);
                refusals += 1;
                if refusals == REFUSALS_MAX {
                    break;
                }
            }
            if part.len() > 1 {
                let middle = part.start + part.len() / 2;
                let mut halves = [part.start..middle, middle..part.end];
                // In random order, so that no row waits behind the same refused ones for ever.
                if rand::random() {
                    halves.reverse();
                }
                parts.extend(halves);
                continue;
            }
            let one = &settlements[part.start];
            if error.is_about_data() && has_data(&one.verdict) {
                tracing::error!(%error, task.id = %one.lease.arming, "the ledger refuses the data of a settlement: unless it can be written without its result, the task runs again when its lease expires");
                results[part.start] = None;
            }
        }
        self.health.set_settlements_refused(refusals > 0);
        results
    }

    /// Writes settlements, and waits out an outage. An error means that the ledger refuses the statement.
    async fn write_through_outages(
        &self,
        settlements: &[Settlement],
    ) -> Result<Vec<Settled>, LedgerError> {
        loop {
            match self.claims.settle(settlements).await {
                Err(error) if error.is_transient() => {
                    self.health.set_settlements_wait(true);
                    self.health.failed("settle runs", &error);
                    tokio::time::sleep(PAUSE).await;
                }
                answer => {
                    self.health.set_settlements_wait(false);
                    return answer;
                }
            }
        }
    }
}

/// True if the verdict has data that the ledger could refuse: text or JSON. A verdict without data is refused for a
/// reason that may pass, whatever the server says.
fn has_data(verdict: &Verdict) -> bool {
    match verdict {
        Verdict::Complete | Verdict::Release | Verdict::GiveBack => false,
        Verdict::NextOccurrence { end, result, .. } => end.death().is_some() || result.is_some(),
        Verdict::CompleteWith(_)
        | Verdict::RetryAt { .. }
        | Verdict::Snooze { .. }
        | Verdict::Bury(_) => true,
    }
}
