//! Keys that an audit has found missing, until it arms them.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use crate::timer::Alarm;

/// A key is armed this long after it was missing: a program may have deleted it, which cancels its task within this time.
pub(super) const ARMED_AFTER: Duration = Duration::from_secs(2);

/// Most pages with missing keys that wait.
const PAGES_MAX: usize = 256;

/// The missing keys of the pages that were read, oldest first. Each page knows its place.
#[derive(Debug)]
pub(super) struct Missing<P>(VecDeque<MissingPage<P>>);

/// The missing keys of a page.
#[derive(Debug)]
pub(super) struct MissingPage<P> {
    pub(super) found: Instant,
    pub(super) alarms: Vec<Alarm>,
    place: P,
}

impl<P> Default for Missing<P> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<P> Missing<P> {
    /// Forgets everything. Returns the place of the oldest page.
    pub(super) fn forget(&mut self) -> Option<P> {
        let first = self.0.pop_front()?;
        self.0.clear();
        Some(first.place)
    }

    pub(super) fn add(&mut self, alarms: Vec<Alarm>, place: P) {
        self.0.push_back(MissingPage {
            found: Instant::now(),
            alarms,
            place,
        });
    }

    /// Returns the oldest page, if it is its turn or there is no room, or if all have to be waited for.
    pub(super) fn next(&self, waits: bool) -> Option<&MissingPage<P>> {
        let first = self.0.front()?;
        let is_ripe = first.found.elapsed() >= ARMED_AFTER;
        (waits || is_ripe || self.0.len() > PAGES_MAX).then_some(first)
    }

    /// Removes the oldest page.
    pub(super) fn armed(&mut self) {
        self.0.pop_front();
    }
}
