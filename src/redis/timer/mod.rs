//! The timers on Redis: expiring keys, sorted sets, a wheel.

mod hints;
pub mod key_expiry;
mod key_inspector;
mod key_watch;
mod listener;
mod listener_state;
mod marks;
mod nudge;
mod probe;
mod replay;
mod sentinel;
mod session;
pub mod sorted_set;
pub mod wheel;

use lapsed_core::timer::*;
