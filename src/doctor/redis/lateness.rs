//! Lateness check: predicted lateness of bare events.

use std::time::Duration;

use lapsed::diagnosis::Finding;
use lapsed_core::format::{count, duration};
use lapsed_redis::Facts;

pub(super) const LATENESS: &str = "redis.lateness";

pub(super) const EFFORT: &str = "active-expire-effort";

/// Largest lateness of bare events that is not reported.
const LATE: Duration = Duration::from_secs(1);

/// Time of one expiry cycle of Redis over all keys: the maximum lateness of an event. The mean is half of it.
fn lap(expiring: u64, hz: u64, effort: u64) -> Duration {
    let per_second = hz.max(1) * (20 + 5 * effort.clamp(1, 10).saturating_sub(1));
    Duration::from_secs_f64(expiring as f64 / per_second as f64)
}

pub(super) fn lateness(info: &Facts, effort: Option<u64>, database: i64, nudge: bool) -> Finding {
    let hz = info.number("configured_hz").or_else(|| info.number("hz"));
    let expiring = info.expiring_keys(database);
    let late = lap(expiring, hz.unwrap_or(10), effort.unwrap_or(1));
    let or_default = |value: Option<u64>, default: u64| match value {
        Some(value) => value.to_string(),
        None => format!("{default} (assumed)"),
    };
    let found = format!(
        "{} keys expire (hz {}, {EFFORT} {}): a bare event comes up to {} late, half of that on average",
        count(expiring),
        or_default(hz, 10),
        or_default(effort, 1),
        duration(late),
    );
    if late < LATE {
        return Finding::ok(LATENESS, found);
    }
    if nudge {
        return Finding::note(
            LATENESS,
            format!(
                "{found}; a running daemon keeps its tasks punctual with a nudge for each key when it is due"
            ),
        );
    }
    Finding::warning(LATENESS, format!("{found}; tasks then wait for the sweep")).remedy(format!(
        "set `nudge.enabled = true`; else raise `hz` (to 100) and `{EFFORT}` (to 10)"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assertions::assert_is;
    use lapsed::diagnosis::Severity;

    #[test]
    fn the_predicted_lateness_is_within_a_tenth_of_the_measured_one() {
        let seconds = |keys, hz, effort| lap(keys, hz, effort).as_secs_f64();
        let measured = 33.4;
        assert!((seconds(1_012_000, 500, 10) / measured - 1.0).abs() < 0.1);
    }

    #[test]
    fn the_predicted_lateness_grows_with_the_keys_and_falls_with_hz_and_effort() {
        assert_eq!(lap(100_000, 10, 1), Duration::from_secs(500));
        assert_eq!(lap(200_000, 10, 1), Duration::from_secs(1_000));
        assert_eq!(lap(100_000, 100, 1), Duration::from_secs(50));
        assert_eq!(lap(100_000, 10, 5), Duration::from_secs(250));
        assert_eq!(lap(0, 0, 0), Duration::ZERO);
    }

    #[test]
    fn late_events_matter_only_without_the_nudge() {
        let info = Facts::from([("configured_hz", "10"), ("db0", "keys=9,expires=100000")]);
        let judged = lateness(&info, Some(1), 0, true);
        assert_is(
            &judged,
            Severity::Note,
            "100,000 keys expire (hz 10, active-expire-effort 1)",
        );
        assert!(judged.found.contains("up to 8 min 20 s late"));
        assert_is(
            &lateness(&info, None, 0, false),
            Severity::Warning,
            "1 (assumed)",
        );
        assert_is(&lateness(&info, None, 3, false), Severity::Ok, "0 keys");
    }
}
