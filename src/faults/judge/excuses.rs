//! Which fault excuses what.

use crate::history::{Hits, Ms, Window};

/// Longest time between a due time and its start that `docs/guarantees.md` promises.
pub const LATE_MS_MAX: Ms = 2_000;

/// Time between the commit of a claim and the first line of its target, and errors of measurement.
pub const START_MS_MAX: Ms = 1_000;

/// Time after a fault of the ledger in which daemons find it again.
pub const RECOVERY_MS: Ms = 5_000;

/// The windows of faults, and what each excuses.
pub struct Faults {
    /// By their beginning.
    windows: Vec<Window>,
    lease_ms: Ms,
    longest_ms: Ms,
}

impl Faults {
    pub fn new(windows: &[Window], lease_ms: Ms) -> Self {
        let mut windows = windows.to_vec();
        windows.sort_by_key(|window| window.from);
        let lengths = windows.iter().map(|window| window.to - window.from);
        let longest_ms = lengths.max().unwrap_or(0);
        Self {
            windows,
            lease_ms,
            longest_ms,
        }
    }

    /// Windows that are open at some time between these two. Each is open for `after_ms` longer than it says.
    pub fn between(&self, from: Ms, to: Ms, after_ms: Ms) -> impl Iterator<Item = &Window> {
        let earliest = from - self.longest_ms - after_ms;
        let first = self
            .windows
            .partition_point(|window| window.from < earliest);
        let near = self.windows[first..]
            .iter()
            .take_while(move |window| window.from <= to);
        near.filter(move |window| window.to + after_ms >= from)
    }

    /// Whether a run of this daemon that began at `from` may have been taken from it by `to`.
    pub fn interrupts(&self, daemon: usize, from: Ms, to: Ms) -> bool {
        let mut windows = self.between(from, to, RECOVERY_MS);
        windows.any(|window| match window.hits {
            Hits::Ledger(of) | Hits::Daemon(of) => of.is_none_or(|of| of == daemon),
            Hits::Worker(of) => of == daemon,
            Hits::Targets | Hits::Machine => true,
            Hits::Redis | Hits::Pause(_) => false,
        })
    }

    /// Whether this daemon may start what it claimed before `from` so late as `to`.
    pub fn delays(&self, daemon: usize, from: Ms, to: Ms) -> bool {
        let mut windows = self.between(from - START_MS_MAX, to, 0);
        windows.any(|window| match window.hits {
            Hits::Ledger(of) | Hits::Daemon(of) => of.is_none_or(|of| of == daemon),
            Hits::Pause(of) | Hits::Worker(of) => of == daemon,
            Hits::Targets | Hits::Machine => true,
            Hits::Redis => false,
        })
    }

    /// Until when a worker keeps a task that it took at this time, if it exceeds its lease.
    pub fn kept_until(&self, worker: usize, from: Ms) -> Option<Ms> {
        let windows = self.between(from, from + START_MS_MAX, 0);
        let of_it = windows.filter(|window| {
            matches!(window.hits, Hits::Worker(of) if of == worker) && window.from >= from
        });
        of_it.map(|window| window.to).max()
    }

    /// Whether a key of plain Redis may be gone, or unheard, between these times.
    pub fn hides_keys(&self, from: Ms, to: Ms) -> bool {
        self.between(from - RECOVERY_MS, to + LATE_MS_MAX, RECOVERY_MS)
            .next()
            .is_some()
    }

    /// The time from which a task that could start at `ready` is promised to start within 2 s.
    pub fn promised_from(&self, ready: Ms) -> Ms {
        let mut from = ready;
        loop {
            let reach = self.lease_ms + RECOVERY_MS;
            let blocked = self.between(from - LATE_MS_MAX, from + LATE_MS_MAX, reach);
            let until = blocked
                .filter_map(|window| self.blocks_until(window, from))
                .max();
            match until {
                Some(until) if until > from => from = until,
                _ => return from,
            }
        }
    }

    /// How long this fault keeps a task from starting that could start at this time, if it does.
    fn blocks_until(&self, window: &Window, at: Ms) -> Option<Ms> {
        let before = window.from - LATE_MS_MAX;
        // The daemon may have claimed it, and nobody else may until the lease ends.
        let of_lease = window.to + self.lease_ms + START_MS_MAX;
        let (until, last) = match window.hits {
            Hits::Redis => return None,
            Hits::Worker(_) => return None,
            Hits::Targets => (of_lease, window.to),
            Hits::Machine => (window.to, window.to),
            Hits::Ledger(None) | Hits::Daemon(None) => (of_lease, window.to + RECOVERY_MS),
            Hits::Ledger(Some(_)) => (of_lease, window.to),
            Hits::Daemon(Some(_)) => (of_lease, window.from + START_MS_MAX),
            Hits::Pause(_) => (window.to, window.to),
        };
        (before <= at && at <= last).then_some(until)
    }
}
