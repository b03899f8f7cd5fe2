//! What every timer does, whichever servers it uses. A timer is added by one line of [`TIMERS`].

#![allow(clippy::unwrap_used, reason = "in a test it stops where it went wrong")]

mod switching;

/// A timer under test.
#[derive(Debug, Clone, Copy)]
pub struct TimerUnderTest {
    /// The value of `timer` in the configuration.
    pub name: &'static str,
    /// True if it writes entries that other processes can see.
    pub has_entries: bool,
}

/// Every timer.
pub const TIMERS: &[TimerUnderTest] = &[
    TimerUnderTest {
        name: "key_expiry",
        has_entries: true,
    },
    TimerUnderTest {
        name: "sorted_set",
        has_entries: true,
    },
    TimerUnderTest {
        name: "ledger_poll",
        has_entries: false,
    },
];
