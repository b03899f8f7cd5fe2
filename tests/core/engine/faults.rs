//! Faults of a ledger, which a test turns on and off.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use lapsed::ledger::{DueScan, LedgerError, Window};
use tokio::time::Instant;

/// Faults between the engine and the ledger; none at first.
#[derive(Debug, Default)]
pub struct Faults {
    /// Look-ups fail.
    pub look_up_fails: AtomicBool,
    /// Adoptions fail.
    pub adopt_fails: AtomicBool,
    /// Claims are refused, and so is a write that changes nothing.
    pub read_only: AtomicBool,
    /// Delay of the answer to a claim. The claim itself is not delayed.
    pub claim_answer_takes: Mutex<Duration>,
    /// Number of claims that wait for their answer.
    pub claims_under_way: AtomicU32,
    /// Maximum number of such claims at a time.
    pub claims_at_once_max: AtomicU32,
    /// This row is locked: no claim takes it.
    pub locked_row: Mutex<Option<u64>>,
    /// Errors that the next settlements meet before anything is written.
    pub settle_errors: Mutex<VecDeque<LedgerError>>,
    /// Every settlement is refused.
    pub settle_refused: AtomicBool,
    /// A settlement of this row is refused, and with it all of its batch.
    pub refused_row: Mutex<Option<u64>>,
    /// A settlement with a result is refused because of its data.
    pub results_unfit: AtomicBool,
    /// Renewals find their rows locked.
    pub renewals_locked: AtomicBool,
    /// Progress is refused.
    pub reports_refused: AtomicBool,
    /// Statements that were to write progress.
    pub reports: AtomicUsize,
    /// Number of settlements that find their rows locked.
    pub settle_locked: AtomicU32,
    /// Error of the engine's estimate of the ledger's clock.
    pub clock_ahead: Mutex<Duration>,
    /// Lists that take half a second and find nothing yet: the search continues where it stopped.
    pub lists_stop: AtomicU32,
    /// Number of scans.
    pub scans: AtomicU32,
    /// Time that a scan for future rows takes.
    pub scan_ahead_takes: Mutex<Duration>,
    /// Number of scans for overdue rows.
    pub overdue_scans: AtomicU32,
    /// Number of scans for leases.
    pub lease_scans: AtomicU32,
    /// Number of scans for rows due about now.
    pub near_scans: AtomicU32,
    /// State of the ledger as it tells it to probes; `None`: it cannot tell.
    pub unsignalled_changes: Mutex<Option<u64>>,
    /// Scans for rows due about now fail.
    pub scan_near_fails: AtomicBool,
    /// Scans for leases fail.
    pub scan_leases_fails: AtomicBool,
    /// Reads of the pauses fail.
    pub pauses_fail: AtomicBool,
    /// Counts of tasks fail, after they have waited this long for a connection.
    pub counts_fail_after: Mutex<Option<Duration>>,
    /// Until then, statements wait for a connection: none reaches the ledger, and none fails.
    pub silent_until: Mutex<Option<Instant>>,
}

impl Faults {
    pub(super) async fn connection(&self) {
        let until = *self.silent_until.lock().unwrap();
        if let Some(until) = until {
            tokio::time::sleep_until(until).await;
        }
    }

    /// Counts a scan.
    pub(super) fn scan(&self, scan: &DueScan) {
        self.scans.fetch_add(1, Ordering::SeqCst);
        if let Window::OverdueOldest(_) | Window::OverdueNewest(_) = scan.window {
            self.overdue_scans.fetch_add(1, Ordering::SeqCst);
        }
    }
}

pub fn unavailable() -> LedgerError {
    LedgerError::Unavailable {
        message: "gone".into(),
        source: None,
    }
}

pub fn refused() -> LedgerError {
    LedgerError::Refused {
        message: "no".into(),
        source: None,
    }
}
