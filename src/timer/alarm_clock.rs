//! Waking up at the microsecond.
//!
//! The runtime's own timers are exact to a millisecond or two: it counts in ticks of one, and tells the kernel so. A
//! `timerfd` is exact to the kernel's slack, some 50 µs, and the runtime is woken by it like by any other descriptor.

use std::time::Duration;

use tokio::time::Instant;

/// Sleeps until an instant, as exactly as the system can.
#[derive(Debug)]
pub struct AlarmClock {
    #[cfg(target_os = "linux")]
    descriptor: Option<tokio::io::unix::AsyncFd<rustix::fd::OwnedFd>>,
}

impl AlarmClock {
    /// The runtime's own timer: it keeps to the time of a test that pauses it.
    pub fn of_the_runtime() -> Self {
        Self {
            #[cfg(target_os = "linux")]
            descriptor: None,
        }
    }

    /// The kernel's; where there is none to be had, the runtime's.
    ///
    /// # Panics
    /// Outside of a runtime.
    pub fn of_the_kernel() -> Self {
        Self {
            #[cfg(target_os = "linux")]
            descriptor: descriptor()
                .inspect_err(
                    |error| tracing::debug!(%error, "no timerfd: waking up is exact to some 2 ms"),
                )
                .ok(),
        }
    }

    /// Sleeps until then.
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
    reason = "its replacement is `unsafe`, for descriptors that somebody else may close; this one is owned"
)]
fn descriptor() -> std::io::Result<tokio::io::unix::AsyncFd<rustix::fd::OwnedFd>> {
    use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
    let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
    let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
    tokio::io::unix::AsyncFd::with_interest(timer, tokio::io::Interest::READABLE)
}

/// Sets the timer and waits for it. Setting it anew takes back an expiry that nobody read.
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

    #[tokio::test]
    async fn it_never_rings_early_and_can_be_set_again() {
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
        // Given up half-way, it is set anew.
        let far = Instant::now() + Duration::from_secs(60);
        let given_up = tokio::time::timeout(Duration::from_millis(5), clock.sleep_until(far)).await;
        assert!(given_up.is_err());
        let wake = Instant::now() + Duration::from_millis(5);
        clock.sleep_until(wake).await;
        assert!(wake <= Instant::now() && Instant::now() < far);
    }
}
