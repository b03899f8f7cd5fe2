//! Access to clocks.
//!
//! There are two clocks. The *ledger's* clock decides what is due and leased, inside the statement that acts.
//! [`LedgerClock`] follows it in this process, to know when to look and from when a delay counts; an error of a few
//! milliseconds costs lateness, never safety. The wall clock of this machine decides nothing, unless it is the ledger's.

mod steps;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use tokio::time::Instant;

pub use self::steps::ClockStep;
use self::steps::{JUMP_MIN, Steps};
use crate::task::UnixMs;

/// The clocks of this machine, as a simulator sets them for the whole process.
#[derive(Debug, Clone, Copy)]
#[doc(hidden)] // for the simulator
pub struct MachineClocks {
    /// The time since 1970 on the wall clock.
    pub wall: fn() -> Duration,
    /// The time since a fixed moment on the monotonic clock, which no test pauses.
    pub monotonic: fn() -> Duration,
}

static SIMULATED: OnceLock<MachineClocks> = OnceLock::new();

/// Replaces the clocks of this machine. Only the first call counts.
#[doc(hidden)] // for the simulator
pub fn simulate(clocks: MachineClocks) {
    let _ = SIMULATED.set(clocks);
}

/// How far the clocks of this process are ahead of those of the machine, in microseconds.
static AHEAD_US: AtomicU64 = AtomicU64::new(0);

/// Sets the clocks of this process forward, for `lapsed dev`: wall clock and monotonic clock alike, as if it had run for
/// that long. The runtime's timers do not follow.
#[doc(hidden)] // for the program
pub fn set_forward(by: Duration) {
    let by_us = u64::try_from(by.as_micros()).unwrap_or(u64::MAX);
    AHEAD_US.fetch_add(by_us, Ordering::Relaxed);
}

fn ahead() -> Duration {
    Duration::from_micros(AHEAD_US.load(Ordering::Relaxed))
}

/// Returns the time since 1970.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place where the wall clock is read"
)]
fn since_epoch() -> Duration {
    match SIMULATED.get() {
        Some(clocks) => (clocks.wall)(),
        None => {
            let elapsed = std::time::SystemTime::UNIX_EPOCH.elapsed();
            elapsed.unwrap_or_default() + ahead()
        }
    }
}

/// Returns the time since a fixed moment, on a clock that a test cannot pause.
#[expect(
    clippy::disallowed_methods,
    reason = "compared with the wall clock, which no test pauses either"
)]
fn monotonic() -> Duration {
    static START: LazyLock<std::time::Instant> = LazyLock::new(std::time::Instant::now);
    match SIMULATED.get() {
        Some(clocks) => (clocks.monotonic)(),
        None => START.elapsed() + ahead(),
    }
}

/// Wall clock of this machine. Used for log lines, as the first estimate of a [`LedgerClock`], and by ledgers in a file.
pub fn wall() -> UnixMs {
    UnixMs(0).plus(since_epoch())
}

/// Wall clock of this machine in microseconds since 1970, for measurements across processes.
pub fn wall_micros() -> u64 {
    u64::try_from(since_epoch().as_micros()).unwrap_or(u64::MAX)
}

/// The ledger's clock, as far as this process knows it: the wall clock of this machine for a ledger in a file. For a server,
/// an estimate: its last reading plus the monotonic time since.
///
/// Uses tokio's clock, so tests can pause it. Clones share one clock.
#[derive(Debug, Clone)]
pub struct LedgerClock {
    source: Arc<Mutex<Source>>,
    steps: Arc<Mutex<Steps>>,
}

#[derive(Debug, Clone, Copy)]
enum Source {
    /// Stands still at this time, in microseconds since 1970.
    Frozen(i64),
    /// The wall clock of this machine.
    Wall,
    Estimate(Anchor),
}

#[derive(Debug, Clone, Copy)]
struct Anchor {
    /// Microseconds since 1970. Rounding to milliseconds would add lateness.
    reading_us: i64,
    at: Instant,
    /// Largest error of the reading: half of its round trip.
    error: Duration,
    /// The wall clock of this machine at `at`, in microseconds since 1970.
    wall_us: i64,
    /// When a reading last contradicted the estimate.
    stepped: Option<Instant>,
}

impl Source {
    /// Returns the time at `instant`, in microseconds since 1970.
    fn time_us(&self, instant: Instant) -> i64 {
        match self {
            Self::Frozen(time_us) => *time_us,
            Self::Wall => {
                // In this order, and rounded down: the result is never later than the time at `instant`.
                let wall_us = wall_us();
                shifted(wall_us, Instant::now(), instant).saturating_sub(1)
            }
            Self::Estimate(anchor) => shifted(anchor.reading_us, anchor.at, instant),
        }
    }

    /// Largest error of a reading now.
    fn error(&self) -> Duration {
        match self {
            Self::Frozen(_) | Self::Wall => Duration::ZERO,
            Self::Estimate(anchor) => anchor.error,
        }
    }
}

/// Returns the time at `instant`, in microseconds since 1970, if it is `time_us` at `at`.
fn shifted(time_us: i64, at: Instant, instant: Instant) -> i64 {
    match instant.checked_duration_since(at) {
        Some(after) => time_us.saturating_add(micros(after)),
        None => time_us.saturating_sub(micros(at - instant)),
    }
}

fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}

fn wall_us() -> i64 {
    i64::try_from(wall_micros()).unwrap_or(i64::MAX)
}

/// Largest assumed drift between the two clocks. With it, a newer and coarser reading replaces an old one at some time.
const DRIFT_PER_SECOND: Duration = Duration::from_micros(100);

/// Most that is added to a due time so that the ledger's clock has reached it.
const MARGIN_MAX: Duration = Duration::from_millis(1);

/// A difference between a reading and the estimate, beyond their errors, that is no drift.
const STEP_MIN: Duration = Duration::from_millis(100);

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
        *self.source() = Source::Frozen(now.0.saturating_mul(1000));
    }

    /// Creates a clock that is the wall clock of this machine, with its steps. For a ledger in a file.
    pub fn wall() -> Self {
        Self::of(Source::Wall)
    }

    /// Creates a clock that reads about `now` until the first reading of the ledger's clock.
    pub fn estimated_at(now: UnixMs) -> Self {
        Self::anchored(now, Duration::MAX)
    }

    fn anchored(now: UnixMs, error: Duration) -> Self {
        Self::of(Source::Estimate(Anchor {
            reading_us: now.0.saturating_mul(1000),
            at: Instant::now(),
            error,
            wall_us: wall_us(),
            stepped: None,
        }))
    }

    fn of(source: Source) -> Self {
        Self {
            source: Arc::new(Mutex::new(source)),
            steps: Arc::new(Mutex::new(Steps::new(wall_us(), monotonic()))),
        }
    }

    /// Returns the estimated time of the ledger.
    pub fn now(&self) -> UnixMs {
        UnixMs(self.now_us().div_euclid(1000))
    }

    /// Returns the same in microseconds since 1970.
    pub fn now_us(&self) -> i64 {
        // The source first: it may be replaced by a later one meanwhile.
        let source = *self.source();
        match source {
            Source::Wall => wall_us(),
            source => source.time_us(Instant::now()),
        }
    }

    /// Returns the estimated time of the ledger at an instant of this process. Never later than what
    /// [`now`](Self::now) returns after that instant, unless the clock takes a reading in between.
    pub fn at(&self, instant: Instant) -> UnixMs {
        let source = *self.source();
        UnixMs(source.time_us(instant).div_euclid(1000))
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
        micros(self.error().min(MARGIN_MAX))
    }

    /// Largest error of the estimate when it was read; the drift since is small. [`Duration::MAX`] before the first reading.
    pub fn error(&self) -> Duration {
        self.source().error()
    }

    /// Takes a reading of the ledger's clock in microseconds since 1970. `asked` is when it was requested; the reply
    /// has just arrived. Ignored if it is less exact than the current estimate and does not contradict it.
    pub fn observe_us(&self, reading_us: i64, asked: Instant) {
        let error = asked.elapsed() / 2;
        let mut source = self.source();
        let Source::Estimate(anchor) = &mut *source else {
            return;
        };
        let age = anchor.at.elapsed();
        let aged = anchor
            .error
            .saturating_add(DRIFT_PER_SECOND.mul_f64(age.as_secs_f64()));
        let estimate_us = shifted(anchor.reading_us, anchor.at, asked + error);
        let apart = Duration::from_micros(estimate_us.abs_diff(reading_us));
        let errors = error.saturating_add(aged);
        let is_step = apart.saturating_sub(errors) > STEP_MIN;
        let mut steps = self.steps();
        // A distrusted estimate has an unknown error, but the time since was counted.
        if apart.saturating_sub(error) >= JUMP_MIN {
            steps.add_read(reading_us.saturating_sub(estimate_us));
        }
        steps.note_reading();
        if error <= aged || is_step {
            *anchor = Anchor {
                stepped: is_step.then(Instant::now).or(anchor.stepped),
                reading_us,
                at: asked + error,
                error,
                wall_us: wall_us().saturating_sub(micros(error)),
            };
        }
    }

    /// True if the ledger's clock was set within this time, or has become that of another server. Other processes may still
    /// count by the former time. Never true of a clock that is no estimate.
    pub fn has_stepped_within(&self, span: Duration) -> bool {
        match *self.source() {
            Source::Estimate(Anchor { stepped, .. }) => {
                stepped.is_some_and(|stepped| stepped.elapsed() < span)
            }
            Source::Frozen(_) | Source::Wall => false,
        }
    }

    /// By how much the ledger's clock was set within the last ten minutes, all in all; `None` if it was not. The clock of a
    /// ledger in a file is looked at with each call.
    pub fn latest_step(&self) -> Option<ClockStep> {
        let is_wall = matches!(*self.source(), Source::Wall);
        let mut steps = self.steps();
        if is_wall {
            steps.look_at(wall_us(), monotonic());
        }
        steps.latest()
    }

    /// Accepts the next reading, however coarse: the current estimate is from another server, or has
    /// [jumped](Self::has_jumped).
    pub fn distrust(&self) {
        if let Source::Estimate(anchor) = &mut *self.source() {
            anchor.error = Duration::MAX;
            anchor.stepped = Some(Instant::now());
        }
    }

    /// True if this is the ledger's time: a reading was taken, from the present server.
    pub fn is_known(&self) -> bool {
        self.error() < Duration::MAX
    }

    /// True if the wall clock of this machine has jumped against the monotonic clock since the last reading: it was set, or
    /// the machine was suspended, which stops the monotonic clock. The estimate may be wrong by as much. Never true of a
    /// clock that is no estimate.
    pub fn has_jumped(&self) -> bool {
        let Source::Estimate(anchor) = *self.source() else {
            return false;
        };
        let expected_us = anchor.wall_us.saturating_add(micros(anchor.at.elapsed()));
        wall_us().abs_diff(expected_us) >= JUMP_MIN.as_micros() as u64
    }

    fn source(&self) -> MutexGuard<'_, Source> {
        self.source
            .lock()
            .expect("nothing panics while holding the clock")
    }

    fn steps(&self) -> MutexGuard<'_, Steps> {
        self.steps
            .lock()
            .expect("nothing panics while holding the steps")
    }
}

/// A moment of this process. Its age counts the time for which the machine was suspended, in which the monotonic clock stands
/// still.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    at: Instant,
    /// The same moment, on a clock that a test cannot pause: how far the wall clock should have come since.
    monotonic: Duration,
    wall_us: i64,
}

impl Moment {
    /// Returns the present moment.
    pub fn now() -> Self {
        Self {
            at: Instant::now(),
            monotonic: monotonic(),
            wall_us: wall_us(),
        }
    }

    /// Returns the time since then. If the wall clock was set forward since, it is too long.
    pub fn age(self) -> Duration {
        let wall_us = wall_us().saturating_sub(self.wall_us);
        let wall = Duration::from_micros(u64::try_from(wall_us).unwrap_or_default());
        let suspended = wall.saturating_sub(monotonic().saturating_sub(self.monotonic));
        match suspended >= JUMP_MIN {
            true => self.at.elapsed() + suspended,
            false => self.at.elapsed(),
        }
    }
}

#[cfg(test)]
mod tests;
