//! The part of a sweep that goes by class and method: a backlog that may not start delays no other task.

use std::collections::VecDeque;

use tokio::time::Instant;

use super::{Cursors, Findings, PAGE, PAGES_MAX, SWEEP_GRACE, Sweep};
use crate::ledger::{DuePage, DueScan, LedgerError, MethodPages, MethodScan, Window};
use crate::task::Paused;

/// Maximum number of classes and methods that one sweep reads, and rows of each that tell whether its tasks may start.
const METHODS_MAX: usize = 512;
const PROBE: u32 = 32;

impl Sweep {
    /// Signals overdue tasks class by class and method by method, so that tasks that may not start hide none of other
    /// methods, however many they are. The oldest few of each method tell whether its tasks may start; if so, pages are read
    /// of each in turn. Returns true if this covered every method.
    pub(super) async fn sweep_methods(
        &self,
        cursors: &mut Cursors,
        findings: &mut Findings,
        paused: &Paused,
    ) -> Result<bool, LedgerError> {
        let after = cursors.method.take();
        let from_start = after.is_none();
        let asked = Instant::now();
        let found = self
            .scans
            .scan_methods(MethodScan {
                by: SWEEP_GRACE,
                after,
                methods: METHODS_MAX,
                limit: PROBE,
            })
            .await?;
        let Some(MethodPages { pages, next }) = found else {
            return Ok(false);
        };
        if self.health.answered_late(asked) {
            return Ok(false);
        }
        let mut whole = from_start && next.is_none();
        cursors.method = next;
        let mut more = VecDeque::new();
        for (method, page) in pages {
            let next = page.next;
            if self.signal_unpaused(page, findings, paused) > 0
                && let Some(next) = next
            {
                more.push_back((method, next));
            }
        }
        for _ in 0..PAGES_MAX {
            if !self.queue.has_room_to_sweep(PAGE as usize) {
                break;
            }
            let Some((method, after)) = more.pop_front() else {
                break;
            };
            let scan = DueScan {
                window: Window::OverdueOldest(SWEEP_GRACE),
                after: Some(after),
                limit: PAGE,
            };
            let asked = Instant::now();
            let page = self.scans.scan_method(&method, scan).await?;
            if self.health.answered_late(asked) {
                return Ok(false);
            }
            let next = page.next;
            if self.signal_unpaused(page, findings, paused) > 0
                && let Some(next) = next
            {
                more.push_back((method, next));
            }
        }
        whole &= more.is_empty();
        Ok(whole)
    }

    /// Signals a page as [`signal_page`](Self::signal_page) does, without paused and held tasks.
    fn signal_unpaused(
        &self,
        mut page: DuePage,
        findings: &mut Findings,
        paused: &Paused,
    ) -> usize {
        page.rows
            .retain(|row| paused.blocks(&row.key, row.arming.due).is_none());
        self.signal_page(page, findings)
    }
}
