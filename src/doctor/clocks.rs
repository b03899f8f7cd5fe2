//! Clock check: offsets between both servers and this machine.
//!
//! `lapsed` needs no synchronized clocks: the ledger's clock decides, and Redis is given remaining times. Programs
//! that compute due times from their own clock, and readers of logs, do need them.

use std::time::Duration;

use lapsed::clock;
use lapsed::diagnosis::Finding;
use lapsed::task::UnixMs;
use lapsed_core::format::duration;

const CHECK: &str = "clocks";

/// Largest offset that is not a warning.
const APART: Duration = Duration::from_millis(500);

/// The clock of a server, as read from this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reading {
    /// Offset: positive if it is ahead of the clock of this machine.
    pub(super) ahead_ms: i64,
    /// Error bound of the offset: half the round trip.
    pub(super) error: Duration,
}

impl Reading {
    /// Takes a reading.
    pub(super) async fn take<E>(
        question: impl Future<Output = Result<UnixMs, E>>,
    ) -> Result<Self, E> {
        let before = clock::wall();
        let reading = question.await?;
        let error = clock::wall().since(before) / 2;
        let here = before.plus(error);
        Ok(Self {
            ahead_ms: reading.0 - here.0,
            error,
        })
    }
}

/// Judges the readings that are available.
pub(super) fn compare(redis: Option<Reading>, ledger: Option<Reading>) -> Vec<Finding> {
    let here = Reading {
        ahead_ms: 0,
        error: Duration::ZERO,
    };
    let clocks = [
        ("redis", redis),
        ("the ledger", ledger),
        ("this host", Some(here)),
    ];
    let clocks: Vec<(&str, Reading)> = clocks
        .into_iter()
        .filter_map(|(name, reading)| reading.map(|reading| (name, reading)))
        .collect();
    let pairs = clocks.iter().enumerate().flat_map(|(index, first)| {
        let rest = &clocks[index + 1..];
        rest.iter().map(move |second| (first, second))
    });
    let (mut largest, mut apart) = (None, Vec::new());
    for ((one, reading), (other, than)) in pairs {
        let ahead_ms = reading.ahead_ms - than.ahead_ms;
        let apart_by = Duration::from_millis(ahead_ms.unsigned_abs());
        largest = largest.max(Some(apart_by));
        if apart_by > APART + reading.error + than.error {
            let direction = if ahead_ms > 0 { "ahead of" } else { "behind" };
            apart.push(
                Finding::warning(
                    CHECK,
                    format!("{one} is {} {direction} {other}", duration(apart_by)),
                )
                .remedy("synchronize the clocks of all machines (`chronyd`, `systemd-timesyncd`): programs that compute due times from their own clock are off by as much"),
            );
        }
    }
    match (largest, apart.is_empty()) {
        (Some(largest), true) => {
            let names: Vec<&str> = clocks.iter().map(|(name, _)| *name).collect();
            let found = format!("{} agree within {}", names.join(", "), duration(largest));
            vec![Finding::ok(CHECK, found)]
        }
        _ => apart,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lapsed::diagnosis::Severity;

    fn ahead(ms: i64, error_ms: u64) -> Option<Reading> {
        Some(Reading {
            ahead_ms: ms,
            error: Duration::from_millis(error_ms),
        })
    }

    #[test]
    fn clocks_that_agree_are_one_finding() {
        let findings = compare(ahead(-100, 2), ahead(300, 2));
        let [only] = &findings[..] else {
            panic!("{findings:?}")
        };
        assert_eq!(only.severity, Severity::Ok);
        assert_eq!(
            only.found,
            "redis, the ledger, this host agree within 400 ms"
        );
        assert_eq!(compare(None, None), []);
    }

    #[test]
    fn each_pair_of_differing_clocks_is_named() {
        let findings = compare(ahead(2300, 1), ahead(0, 1));
        let found: Vec<&str> = findings.iter().map(|f| &f.found[..]).collect();
        assert_eq!(
            found,
            [
                "redis is 2.3 s ahead of the ledger",
                "redis is 2.3 s ahead of this host"
            ]
        );
        assert_eq!(findings[0].severity, Severity::Warning);
        let findings = compare(None, ahead(-900, 0));
        assert_eq!(findings[0].found, "the ledger is 900 ms behind this host");
    }

    #[test]
    fn a_slow_reply_is_not_mistaken_for_a_wrong_clock() {
        let findings = compare(None, ahead(900, 450));
        assert_eq!(findings[0].severity, Severity::Ok);
    }
}
