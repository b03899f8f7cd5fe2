//! The timers on Redis: expiring keys, sorted sets, a wheel.

mod hints;
pub mod key_expiry;
mod key_inspector;
mod key_watch;
mod listener;
mod listener_state;
mod listeners;
mod marks;
mod nudge;
mod probe;
mod replay;
mod sentinel;
mod session;
pub mod sorted_set;
pub mod wheel;

use crate::Commands;
use lapsed_core::timer::*;

/// Returns the clock for alarms: exact, unless the time of the runtime is the one of the server.
fn alarm_clock(commands: &Commands) -> AlarmClock {
    match commands.endpoint().is_in_process() {
        true => AlarmClock::of_the_runtime(),
        false => AlarmClock::of_the_kernel(),
    }
}
