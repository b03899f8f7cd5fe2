//! Steps of the ledger's clock: that it was set, and by how much.

use std::time::Duration;

use tokio::time::Instant;

/// The wall clock of this machine is slewed by less than this between two readings of a ledger's clock.
pub(super) const JUMP_MIN: Duration = Duration::from_secs(1);

/// How long a step is told.
const STEP_SHOWN_FOR: Duration = Duration::from_secs(600);

/// That the ledger's clock was set, or has become that of another server, or that this machine was suspended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockStep {
    /// By how much.
    pub by: Duration,
    /// True if it jumped ahead, false if it went back.
    pub is_ahead: bool,
    /// When it was noticed.
    pub ago: Duration,
}

/// Steps that were noticed. Those that cancel each other are none.
#[derive(Debug)]
pub(super) struct Steps {
    sum_us: i64,
    noticed: Option<Instant>,
    /// True if a reading was taken: the first says nothing of a step.
    is_read: bool,
    /// The wall clock of this machine at its latest look, in microseconds since 1970, and the monotonic clock.
    wall_us: i64,
    monotonic: Duration,
}

impl Steps {
    /// None yet. `wall_us` and `monotonic` are the clocks of this machine.
    pub(super) fn new(wall_us: i64, monotonic: Duration) -> Self {
        Self {
            sum_us: 0,
            noticed: None,
            is_read: false,
            wall_us,
            monotonic,
        }
    }

    /// Adds what a reading says against the estimate. The first one says nothing.
    pub(super) fn add_read(&mut self, by_us: i64) {
        if self.is_read {
            self.add(by_us);
        }
    }

    /// Notes that a reading was taken.
    pub(super) fn note_reading(&mut self) {
        self.is_read = true;
    }

    fn add(&mut self, by_us: i64) {
        self.sum_us = self.sum_us.saturating_add(by_us);
        self.noticed = Some(Instant::now());
    }

    /// Looks at the clocks of this machine. The rate of the wall clock may be off by a thousandth.
    pub(super) fn look_at(&mut self, wall_us: i64, monotonic: Duration) {
        let passed = monotonic.saturating_sub(self.monotonic);
        let passed_us = i64::try_from(passed.as_micros()).unwrap_or(i64::MAX);
        let by_us = wall_us - self.wall_us.saturating_add(passed_us);
        if by_us.unsigned_abs() >= (JUMP_MIN + passed / 1000).as_micros() as u64 {
            self.add(by_us);
        }
        (self.wall_us, self.monotonic) = (wall_us, monotonic);
    }

    /// The sum of the steps, while the latest is recent.
    pub(super) fn latest(&mut self) -> Option<ClockStep> {
        let ago = self.noticed?.elapsed();
        if ago > STEP_SHOWN_FOR {
            (self.sum_us, self.noticed) = (0, None);
            return None;
        }
        // In whole seconds: the measurement is not more exact.
        let by = Duration::from_secs((self.sum_us.unsigned_abs() + 500_000) / 1_000_000);
        (by >= JUMP_MIN).then_some(ClockStep {
            by,
            is_ahead: self.sum_us > 0,
            ago,
        })
    }
}
