//! The one place where clocks are read.
//!
//! Two clocks exist. What is due and what is leased is decided by the *ledger's* clock, inside the
//! statement that acts. In this process [`LedgerClock`] follows it, to know when to look; being a few
//! milliseconds off costs lateness, never safety. The wall clock of this machine decides nothing.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use crate::task::UnixMs;

/// This machine's wall clock: for log lines, and to start a [`LedgerClock`] that has heard nothing yet.
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

/// This machine's wall clock in microseconds since 1970: for measurements in which every process shares it.
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

/// The ledger's clock, followed from here: its last known reading plus the monotonic time since.
///
/// Runs on tokio's clock, so a test that pauses time moves it by hand. Clones share one clock.
#[derive(Debug, Clone)]
pub struct LedgerClock(Arc<Mutex<Anchor>>);

#[derive(Debug, Clone, Copy)]
struct Anchor {
    /// Microseconds since 1970: half a millisecond lost here would be half a millisecond of lateness.
    reading_us: i64,
    /// `None`: time stands still.
    at: Option<Instant>,
    /// How wrong the reading may be: half the round trip it took.
    error: Duration,
}

impl Anchor {
    fn age(&self) -> Duration {
        self.at.map_or(Duration::ZERO, |at| at.elapsed())
    }
}

/// How fast two crystals drift apart at worst; it makes an old reading give way to a newer, coarser one.
const DRIFT_PER_SECOND: Duration = Duration::from_micros(100);

/// What is added to a due time at most, so that the ledger's clock is not ahead of this one.
const MARGIN_MAX: Duration = Duration::from_millis(1);

impl LedgerClock {
    /// A clock that reads `now` at this instant, and *is* the ledger's: for one in memory.
    pub fn starting_at(now: UnixMs) -> Self {
        Self::anchored(now, Duration::ZERO)
    }

    /// A clock that reads `now` until it is [`set`](Self::set): for tests.
    pub fn standing_at(now: UnixMs) -> Self {
        let clock = Self::starting_at(now);
        clock.set(now);
        clock
    }

    /// From now on it stands still, and reads `now`.
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

    /// A clock that is believed to read about `now`, until the ledger has been asked.
    pub fn guessing(now: UnixMs) -> Self {
        Self::anchored(now, Duration::MAX)
    }

    fn anchored(now: UnixMs, error: Duration) -> Self {
        Self(Arc::new(Mutex::new(Anchor {
            reading_us: now.0.saturating_mul(1000),
            at: Some(Instant::now()),
            error,
        })))
    }

    /// The ledger's time, as far as it is known here.
    pub fn now(&self) -> UnixMs {
        UnixMs(self.now_us().div_euclid(1000))
    }

    /// The same in microseconds since 1970.
    pub fn now_us(&self) -> i64 {
        let anchor = self.anchor();
        let since = i64::try_from(anchor.age().as_micros()).unwrap_or(i64::MAX);
        anchor.reading_us.saturating_add(since)
    }

    /// What the ledger's clock reads at least. Its time is known here only as exactly as a round trip is short, and what
    /// is asked a moment too early is asked in vain.
    pub fn surely(&self) -> UnixMs {
        UnixMs(
            self.now_us()
                .saturating_sub(self.margin_us())
                .div_euclid(1000),
        )
    }

    /// The instant at which [`surely`](Self::surely) will read `moment`; now if it has passed.
    pub fn instant_of(&self, moment: UnixMs) -> Instant {
        let surely_us = self.now_us().saturating_sub(self.margin_us());
        let wait_us = moment.0.saturating_mul(1000).saturating_sub(surely_us);
        Instant::now() + Duration::from_micros(u64::try_from(wait_us).unwrap_or(0))
    }

    fn margin_us(&self) -> i64 {
        let margin = self.anchor().error.min(MARGIN_MAX);
        i64::try_from(margin.as_micros()).unwrap_or(0)
    }

    /// Takes in a reading of the ledger's clock, in microseconds since 1970: asked for at `asked`, and the answer is in
    /// hand now. Kept if it is at least as exact as what is known.
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

    /// The next reading counts, however coarse: what is known is another server's time.
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
    async fn it_runs_with_monotonic_time() {
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
    async fn the_first_reading_of_another_server_counts_however_coarse() {
        let clock = LedgerClock::guessing(UnixMs(0));
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
    async fn one_that_was_set_stands_still() {
        let clock = LedgerClock::standing_at(UnixMs(1000));
        tokio::time::advance(Duration::from_millis(250)).await;
        clock.observe_us(5_000_000, Instant::now());
        assert_eq!(clock.now(), UnixMs(1000));
        clock.set(UnixMs(900));
        assert_eq!((clock.now(), clock.surely()), (UnixMs(900), UnixMs(900)));
    }

    #[tokio::test(start_paused = true)]
    async fn the_more_exact_reading_wins_until_it_is_old() {
        let clock = LedgerClock::guessing(UnixMs(0));
        let asked = Instant::now();
        tokio::time::advance(Duration::from_millis(2)).await;
        clock.observe_us(10_001_000, asked);
        assert_eq!(clock.now(), UnixMs(10_002));
        assert_eq!(
            clock.surely(),
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
