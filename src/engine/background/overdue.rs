//! How long the oldest overdue task has waited that no pause or hold keeps from starting.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::ledger::{DueScan, LedgerError, Scans, Window};
use crate::task::{Paused, UnixMs};

/// Rows of a page. The oldest is looked for; the others are read in case rows with invalid keys come first.
const PAGE: u32 = 100;

/// Longest look. The next one goes on from there.
const LOOK_MAX: Duration = Duration::from_millis(100);

/// Looks for the oldest overdue task that may start. Among very many paused tasks it takes several looks to find one.
#[derive(Debug, Default)]
pub struct OldestUnpaused {
    paused: Arc<Paused>,
    /// All tasks up to here are paused.
    after: Option<(UnixMs, u64)>,
}

impl OldestUnpaused {
    /// Returns when the oldest that was found could have started; `None` if there is none up to where the look ended.
    ///
    /// # Errors
    /// Those of the ledger.
    pub async fn look(
        &mut self,
        ledger: &dyn Scans,
        paused: Arc<Paused>,
    ) -> Result<Option<UnixMs>, LedgerError> {
        if paused != self.paused {
            *self = Self {
                paused,
                after: None,
            };
        }
        let began = Instant::now();
        while began.elapsed() < LOOK_MAX {
            let scan = DueScan {
                window: Window::OverdueOldest(Duration::ZERO),
                after: self.after,
                limit: PAGE,
            };
            let page = ledger.scan_unpaused(scan, &self.paused).await?;
            if let Some(oldest) = page.rows.first() {
                return Ok(Some(oldest.due_at));
            }
            self.after = page.next;
            if self.after.is_none() {
                break;
            }
        }
        Ok(None)
    }
}
