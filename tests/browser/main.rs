//! The dashboard in a real browser: headless Chromium, and a daemon for each test.

mod axe;
mod browser;
mod daemon;
mod drill;
mod driver;
mod fleet;
mod harness;
mod journeys;
mod night;
mod notifications;
mod operating;
mod pages;

/// What this binary uses of `tests/support`.
#[path = "../support"]
mod support {
    pub mod faked_clock;
    pub mod program;
    #[expect(dead_code, reason = "PyPI is for clients of other tests")]
    pub mod registry;
    pub mod wait;
}
