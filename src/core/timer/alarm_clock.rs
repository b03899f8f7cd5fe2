//! Sleeping until an instant, exact to about 50 µs.
//!
//! The runtime's timers count in ticks of one millisecond and wake one or two milliseconds late. A `timerfd` wakes
//! within the kernel's timer slack, about 50 µs, and the runtime polls it like any other descriptor.

use std::time::Duration;

use tokio::time::Instant;

/// Sleeps until an instant, as exactly as the operating system allows.
#[derive(Debug)]
pub struct AlarmClock {
    #[cfg(target_os = "linux")]
    descriptor: Option<tokio::io::unix::AsyncFd<rustix::fd::OwnedFd>>,
}

impl AlarmClock {
    /// Uses the runtime's timer. Follows paused time in tests.
    pub fn of_the_runtime() -> Self {
        Self {
            #[cfg(target_os = "linux")]
            descriptor: None,
        }
    }

    /// Uses a `timerfd`, or the runtime's timer if none can be created, or if the runtime polls no descriptors.
    pub fn of_the_kernel() -> Self {
        Self {
            #[cfg(target_os = "linux")]
            descriptor: descriptor()
                .inspect_err(
                    |error| tracing::info!(%error, "no timerfd: timers are exact to about 2 ms"),
                )
                .ok(),
        }
    }

    /// Sleeps until `wake`. Returns at once if it has passed.
    ///
    /// # Cancel safety
    /// Cancel safe. One caller at a time.
    pub async fn sleep_until(&mut self, wake: Instant) {
        #[cfg(target_os = "linux")]
        if let Some(descriptor) = &self.descriptor {
            let left = wake.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            if ring(descriptor, left).await.is_ok() {
                return;
            }
        }
        tokio::time::sleep_until(wake).await;
    }
}

#[cfg(target_os = "linux")]
#[expect(
    deprecated,
    reason = "its replacement is `unsafe`, because it takes borrowed descriptors; this one is owned"
)]
fn descriptor() -> std::io::Result<tokio::io::unix::AsyncFd<rustix::fd::OwnedFd>> {
    use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
    let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
    let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
    let register = || tokio::io::unix::AsyncFd::with_interest(timer, tokio::io::Interest::READABLE);
    // A runtime does not tell whether it polls descriptors: without `enable_io` it panics.
    std::panic::catch_unwind(register)
        .unwrap_or_else(|_| Err(std::io::Error::other("the runtime polls no descriptors")))
}

/// Sets the timer and waits for it. Setting it again discards an expiry that was not read.
#[cfg(target_os = "linux")]
async fn ring(
    timer: &tokio::io::unix::AsyncFd<rustix::fd::OwnedFd>,
    left: Duration,
) -> std::io::Result<()> {
    use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};
    let once = Itimerspec {
        it_interval: Timespec::default(),
        it_value: Timespec::try_from(left).map_err(std::io::Error::other)?,
    };
    timerfd_settime(timer.get_ref(), TimerfdTimerFlags::empty(), &once)?;
    loop {
        let mut readable = timer.readable().await?;
        let mut expiries = [0u8; 8];
        match readable.try_io(|timer| Ok(rustix::io::read(timer.get_ref(), &mut expiries)?)) {
            Ok(read) => return read.map(drop),
            Err(_would_block) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alarm_clock_sleeps_in_a_runtime_that_polls_no_descriptors() {
        let mut without_io = tokio::runtime::Builder::new_current_thread();
        let runtime = without_io.enable_time().build().unwrap();
        runtime.block_on(async {
            let mut clock = AlarmClock::of_the_kernel();
            let wake = Instant::now() + Duration::from_millis(5);
            clock.sleep_until(wake).await;
            assert!(Instant::now() >= wake);
        });
    }

    #[tokio::test]
    async fn the_alarm_clock_is_never_early_and_can_be_set_again() {
        let mut clock = AlarmClock::of_the_kernel();
        for wait in [
            Duration::from_millis(20),
            Duration::from_micros(300),
            Duration::ZERO,
        ] {
            let wake = Instant::now() + wait;
            clock.sleep_until(wake).await;
            assert!(Instant::now() >= wake, "{wait:?}");
        }
        // A cancelled sleep does not affect the next one.
        let far = Instant::now() + Duration::from_secs(60);
        let given_up = tokio::time::timeout(Duration::from_millis(5), clock.sleep_until(far)).await;
        assert!(given_up.is_err());
        let wake = Instant::now() + Duration::from_millis(5);
        clock.sleep_until(wake).await;
        assert!(wake <= Instant::now() && Instant::now() < far);
    }
}
