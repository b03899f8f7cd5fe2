//! Access to clocks.
//!
//! There are two clocks. The *ledger's* clock decides what is due and leased, inside the statement that acts.
//! [`LedgerClock`] follows it in this process, to know when to look; an error of a few milliseconds costs lateness,
//! never safety. The wall clock of this machine decides nothing.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use crate::task::UnixMs;

/// Wall clock of this machine. Used for log lines, and as the first estimate of a [`LedgerClock`].
#[expect(
    clippy::disallowed_methods,
    reason = "the one place where the wall clock is read"
)]
pub fn wall() -> UnixMs {
    let since_epoch = std::time::SystemTime::UNIX_EPOCH
        .elapsed()
        .unwrap_or_default();
    UnixMs(0).plus(since_epoch)
}

/// Wall clock of this machine in microseconds since 1970, for measurements across processes.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place where the wall clock is read"
)]
pub fn wall_micros() -> u64 {
    let since_epoch = std::time::SystemTime::UNIX_EPOCH
        .elapsed()
        .unwrap_or_default();
    u64::try_from(since_epoch.as_micros()).unwrap_or(u64::MAX)
}

/// Local estimate of the ledger's clock: its last reading plus the monotonic time since.
///
/// Uses tokio's clock, so tests can pause it. Clones share one clock.
#[derive(Debug, Clone)]
pub struct LedgerClock(Arc<Mutex<Anchor>>);

#[derive(Debug, Clone, Copy)]
struct Anchor {
    /// Microseconds since 1970. Rounding to milliseconds would add lateness.
    reading_us: i64,
    /// `None` for a frozen clock.
    at: Option<Instant>,
    /// Largest error of the reading: half of its round trip.
    error: Duration,
}

impl Anchor {
    fn age(&self) -> Duration {
        self.at.map_or(Duration::ZERO, |at| at.elapsed())
    }

    /// Returns the time at `instant`, in microseconds since 1970.
    fn time_us(&self, instant: Instant) -> i64 {
        let Some(at) = self.at else {
            return self.reading_us;
        };
        let micros = |span: Duration| i64::try_from(span.as_micros()).unwrap_or(i64::MAX);
        match instant.checked_duration_since(at) {
            Some(after) => self.reading_us.saturating_add(micros(after)),
            None => self.reading_us.saturating_sub(micros(at - instant)),
        }
    }
}

/// Largest assumed drift between the two clocks. With it, a newer and coarser reading replaces an old one at some time.
const DRIFT_PER_SECOND: Duration = Duration::from_micros(100);

/// Most that is added to a due time so that the ledger's clock has reached it.
const MARGIN_MAX: Duration = Duration::from_millis(1);

impl LedgerClock {
    /// Creates a clock that reads `now` at this instant and runs on, without an error. For a ledger in memory.
    pub fn starting_at(now: UnixMs) -> Self {
        Self::anchored(now, Duration::ZERO)
    }

    /// Creates a clock that reads `now` until it is [`set`](Self::set), for tests.
    pub fn frozen_at(now: UnixMs) -> Self {
        let clock = Self::starting_at(now);
        clock.set(now);
        clock
    }

    /// Freezes the clock at `now`.
    pub fn set(&self, now: UnixMs) {
        *self
            .0
            .lock()
            .expect("nothing panics while holding the clock") = Anchor {
            reading_us: now.0.saturating_mul(1000),
            at: None,
            error: Duration::ZERO,
        };
    }

    /// Creates a clock that reads about `now` until the first reading of the ledger's clock.
    pub fn estimated_at(now: UnixMs) -> Self {
        Self::anchored(now, Duration::MAX)
    }

    fn anchored(now: UnixMs, error: Duration) -> Self {
        Self(Arc::new(Mutex::new(Anchor {
            reading_us: now.0.saturating_mul(1000),
            at: Some(Instant::now()),
            error,
        })))
    }

    /// Returns the estimated time of the ledger.
    pub fn now(&self) -> UnixMs {
        UnixMs(self.now_us().div_euclid(1000))
    }

    /// Returns the same in microseconds since 1970.
    pub fn now_us(&self) -> i64 {
        // The anchor first: it may be replaced by a later one meanwhile.
        let anchor = self.anchor();
        anchor.time_us(Instant::now())
    }

    /// Returns the estimated time of the ledger at an instant of this process. Never later than what
    /// [`now`](Self::now) returns after that instant, unless the clock takes a reading in between.
    pub fn at(&self, instant: Instant) -> UnixMs {
        UnixMs(self.anchor().time_us(instant).div_euclid(1000))
    }

    /// Returns a lower bound of the ledger's time. A statement that runs before the due time by the ledger's clock
    /// finds nothing, so alarms wait for this bound.
    pub fn lower_bound(&self) -> UnixMs {
        UnixMs(
            self.now_us()
                .saturating_sub(self.margin_us())
                .div_euclid(1000),
        )
    }

    /// Returns the instant at which [`lower_bound`](Self::lower_bound) will read `moment`, or now if it has passed.
    pub fn instant_of(&self, moment: UnixMs) -> Instant {
        let surely_us = self.now_us().saturating_sub(self.margin_us());
        let wait_us = moment.0.saturating_mul(1000).saturating_sub(surely_us);
        Instant::now() + Duration::from_micros(u64::try_from(wait_us).unwrap_or(0))
    }

    fn margin_us(&self) -> i64 {
        let margin = self.anchor().error.min(MARGIN_MAX);
        i64::try_from(margin.as_micros()).unwrap_or(0)
    }

    /// Takes a reading of the ledger's clock in microseconds since 1970. `asked` is when it was requested; the reply
    /// has just arrived. Ignored if it is less exact than the current estimate.
    pub fn observe_us(&self, reading_us: i64, asked: Instant) {
        let error = asked.elapsed() / 2;
        let mut anchor = self
            .0
            .lock()
            .expect("nothing panics while holding the clock");
        let aged = anchor
            .error
            .saturating_add(DRIFT_PER_SECOND.mul_f64(anchor.age().as_secs_f64()));
        if error <= aged && anchor.at.is_some() {
            *anchor = Anchor {
                reading_us,
                at: Some(asked + error),
                error,
            };
        }
    }

    /// Accepts the next reading, however coarse: the current estimate is from another server.
    pub fn distrust(&self) {
        let mut anchor = self
            .0
            .lock()
            .expect("nothing panics while holding the clock");
        anchor.error = Duration::MAX;
    }

    fn anchor(&self) -> Anchor {
        *self
            .0
            .lock()
            .expect("nothing panics while holding the clock")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_clock_runs_with_monotonic_time() {
        let clock = LedgerClock::starting_at(UnixMs(1000));
        tokio::time::advance(Duration::from_millis(250)).await;
        assert_eq!(clock.now(), UnixMs(1250));
        assert_eq!(
            clock.instant_of(UnixMs(1350)),
            Instant::now() + Duration::from_millis(100)
        );
        assert_eq!(clock.instant_of(UnixMs(5)), Instant::now());
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_of_an_instant_is_not_later_than_what_was_read_after_it() {
        let clock = LedgerClock::starting_at(UnixMs(1000));
        let before = Instant::now();
        tokio::time::advance(Duration::from_micros(900)).await;
        let (instant, read) = (Instant::now(), clock.now());
        tokio::time::advance(Duration::from_micros(300)).await;
        assert_eq!((clock.at(instant), read), (UnixMs(1000), UnixMs(1000)));
        clock.observe_us(2_000_000, Instant::now());
        assert_eq!(clock.at(before), UnixMs(1998), "1.2 ms before the reading");
        clock.set(UnixMs(500));
        assert_eq!(clock.at(instant), UnixMs(500));
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_reading_of_another_server_counts() {
        let clock = LedgerClock::estimated_at(UnixMs(0));
        clock.observe_us(1_000_000, Instant::now());
        tokio::time::advance(Duration::from_millis(100)).await;
        let asked = Instant::now();
        tokio::time::advance(Duration::from_millis(100)).await;
        clock.observe_us(9_000_000, asked);
        assert_eq!(clock.now(), UnixMs(1_200), "less exact than what is known");
        clock.distrust();
        clock.observe_us(9_000_000, asked);
        assert_eq!(clock.now(), UnixMs(9_050));
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_was_set_is_frozen() {
        let clock = LedgerClock::frozen_at(UnixMs(1000));
        tokio::time::advance(Duration::from_millis(250)).await;
        clock.observe_us(5_000_000, Instant::now());
        assert_eq!(clock.now(), UnixMs(1000));
        clock.set(UnixMs(900));
        assert_eq!(
            (clock.now(), clock.lower_bound()),
            (UnixMs(900), UnixMs(900))
        );
    }

    #[tokio::test(start_paused = true)]
    async fn the_more_exact_reading_wins_until_it_is_old() {
        let clock = LedgerClock::estimated_at(UnixMs(0));
        let asked = Instant::now();
        tokio::time::advance(Duration::from_millis(2)).await;
        clock.observe_us(10_001_000, asked);
        assert_eq!(clock.now(), UnixMs(10_002));
        assert_eq!(
            clock.lower_bound(),
            UnixMs(10_001),
            "it may be wrong by half the round trip"
        );
        let wait = Duration::from_millis(9);
        assert_eq!(clock.instant_of(UnixMs(10_010)), Instant::now() + wait);

        let asked = Instant::now();
        tokio::time::advance(Duration::from_millis(400)).await;
        clock.observe_us(10_000_000, asked);
        assert_eq!(
            clock.now(),
            UnixMs(10_402),
            "a slow answer does not replace a quick one"
        );

        tokio::time::advance(Duration::from_secs(3600)).await;
        let asked = Instant::now();
        tokio::time::advance(Duration::from_millis(400)).await;
        clock.observe_us(5_000_000_000, asked);
        assert_eq!(clock.now(), UnixMs(5_000_200), "an hour later it does");
    }
}
