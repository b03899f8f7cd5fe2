//! The alarms of the next ticks.

use std::time::Duration;

use super::recent::Recent;
use lapsed_core::clock::LedgerClock;
use lapsed_core::timer::Alarm;
use lapsed_core::timer::due_signals::DueSignals;

/// Alarms to raise when they are due.
#[derive(Debug)]
pub(super) struct Ahead {
    pub(super) due: DueSignals,
    /// Those read of late, so that no entry is raised each time that it is read.
    pub(super) recent: Recent,
}

impl Ahead {
    pub(super) fn new(clock: LedgerClock, tick: Duration) -> Self {
        Self {
            due: DueSignals::new(clock),
            recent: Recent::new(tick),
        }
    }

    /// Accepts alarms, except those that it has had of late.
    pub(super) fn expect_new(&self, alarms: impl IntoIterator<Item = Alarm>) {
        let alarms = alarms.into_iter();
        self.due
            .expect(alarms.filter(|alarm| self.recent.insert(alarm)));
    }
}
