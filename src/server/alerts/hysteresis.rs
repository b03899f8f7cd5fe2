//! Hysteresis: debounces a flapping condition. One alert when it fires, one when it clears.

use std::time::Duration;

use tokio::time::Instant;

/// When a condition is reported.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// It must hold this long first.
    pub patience: Duration,
    /// It must be false this long before it counts as over.
    pub clear_after: Duration,
    /// How often it is reported while it lasts; `None`: once.
    pub repeat: Option<Duration>,
}

/// The state of one condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Alert {
    /// The condition is false.
    #[default]
    Quiet,
    /// The condition holds, and is not reported yet.
    Pending { since: Instant },
    /// The condition is reported.
    Firing {
        since: Instant,
        reported: Instant,
        /// When the condition was last found to hold.
        held: Instant,
    },
}

/// A change of an alert that is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    Fired,
    /// The condition still holds.
    Repeated,
    Resolved,
}

impl Alert {
    /// Takes whether the condition holds now. Returns what is to be reported.
    pub fn observe(&mut self, holds: bool, now: Instant, pace: Pace) -> Option<Change> {
        let fire = |since: Instant| {
            let is_due = now.duration_since(since) >= pace.patience;
            match is_due {
                true => (
                    Self::Firing {
                        since,
                        reported: now,
                        held: now,
                    },
                    Some(Change::Fired),
                ),
                false => (Self::Pending { since }, None),
            }
        };
        let (next, change) = match (*self, holds) {
            (Self::Quiet | Self::Pending { .. }, false) => (Self::Quiet, None),
            (Self::Quiet, true) => fire(now),
            (Self::Pending { since }, true) => fire(since),
            (
                Self::Firing {
                    since, reported, ..
                },
                true,
            ) => {
                let age = now.duration_since(reported);
                let repeats = pace.repeat.is_some_and(|repeat| age >= repeat);
                let firing = Self::Firing {
                    since,
                    reported: if repeats { now } else { reported },
                    held: now,
                };
                (firing, repeats.then_some(Change::Repeated))
            }
            (Self::Firing { held, .. }, false) if now.duration_since(held) >= pace.clear_after => {
                (Self::Quiet, Some(Change::Resolved))
            }
            (firing @ Self::Firing { .. }, false) => (firing, None),
        };
        *self = next;
        change
    }

    /// When the condition began to hold.
    pub fn since(&self) -> Option<Instant> {
        match *self {
            Self::Quiet => None,
            Self::Pending { since } | Self::Firing { since, .. } => Some(since),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACE: Pace = Pace {
        patience: Duration::from_secs(2),
        clear_after: Duration::from_secs(3),
        repeat: Some(Duration::from_secs(10)),
    };

    /// What is reported, by second, for a condition that holds at the seconds marked with `#`.
    fn reported(held: &str, pace: Pace) -> Vec<(usize, Change)> {
        let (start, mut alert) = (Instant::now(), Alert::default());
        let mut observe = |(second, mark): (usize, char)| {
            let now = start + Duration::from_secs(second as u64);
            Some((second, alert.observe(mark == '#', now, pace)?))
        };
        held.chars().enumerate().filter_map(&mut observe).collect()
    }

    #[test]
    fn a_condition_is_reported_when_it_has_lasted() {
        assert_eq!(reported("#.##.#", PACE), []);
        assert_eq!(reported(".###", PACE), [(3, Change::Fired)]);
        let hasty = Pace {
            patience: Duration::ZERO,
            ..PACE
        };
        assert_eq!(reported("#", hasty), [(0, Change::Fired)]);
    }

    #[test]
    fn a_condition_that_flaps_is_one_alert() {
        let flapping = "###..#..#..#....";
        let expected = [(2, Change::Fired), (14, Change::Resolved)];
        assert_eq!(reported(flapping, PACE), expected);
    }

    #[test]
    fn an_alert_that_lasts_is_repeated() {
        let lasting = "#".repeat(24);
        let expected = [
            (2, Change::Fired),
            (12, Change::Repeated),
            (22, Change::Repeated),
        ];
        assert_eq!(reported(&lasting, PACE), expected);
        let once = Pace {
            repeat: None,
            ..PACE
        };
        assert_eq!(reported(&lasting, once), [(2, Change::Fired)]);
    }
}
