//! Memory checks: eviction policy, and output buffer limit of subscribers.

use lapsed::diagnosis::Finding;
use lapsed_core::format::{bytes, count};
use lapsed_redis::Facts;

pub(super) const EVICTION: &str = "redis.eviction";
pub(super) const OUTPUT_BUFFER: &str = "redis.output_buffer";

pub(super) const BUFFER_LIMIT: &str = "client-output-buffer-limit";

/// Bytes of one expired event of a usual key in a subscriber's output buffer; measured.
const EVENT_BYTES: u64 = 118;

/// Smallest number of buffered events; with fewer, an ordinary burst disconnects the subscriber.
const EVENTS_MIN: u64 = 100_000;

/// How long a subscriber on a busy host may stall.
const STALL_SECONDS: u64 = 5;

pub(super) fn eviction(info: &Facts) -> Finding {
    let Some(policy) = info.get("maxmemory_policy") else {
        return Finding::unknown(EVICTION, "the server does not say");
    };
    let limit: u64 = info.number("maxmemory").unwrap_or(0);
    let used: u64 = info.number("used_memory").unwrap_or(0);
    if policy != "noeviction" {
        let when = match limit {
            0 => "as soon as `maxmemory` is set".to_owned(),
            limit => format!("above {}, of which {} are used", bytes(limit), bytes(used)),
        };
        return Finding::warning(
            EVICTION,
            format!("`maxmemory-policy` is `{policy}`: armed keys are evicted {when}, and their tasks wait for the sweep"),
        )
        .remedy("set `maxmemory-policy noeviction`, or give the tasks their own server");
    }
    if limit > 0 && used > limit / 10 * 9 {
        return Finding::warning(
            EVICTION,
            format!("{} of {} are used: when they are full, keys cannot be armed, and tasks wait for the sweep", bytes(used), bytes(limit)),
        )
        .remedy("raise `maxmemory`, or give the tasks their own server");
    }
    Finding::ok(
        EVICTION,
        "`maxmemory-policy` is `noeviction`: no key is evicted",
    )
}

/// Judges a setting such as `normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60`.
pub(super) fn output_buffer(setting: Option<&str>) -> Finding {
    let words: Vec<&str> = setting.unwrap_or_default().split(' ').collect();
    let limits = words.chunks_exact(4).find(|class| class[0] == "pubsub");
    let limits = limits.map(|class| [1, 2, 3].map(|index| class[index].parse::<u64>().ok()));
    let Some([Some(hard), Some(soft), Some(seconds)]) = limits else {
        return Finding::unknown(
            OUTPUT_BUFFER,
            format!("the server does not show `{BUFFER_LIMIT}`"),
        );
    };
    let soft_cuts = soft > 0 && seconds < STALL_SECONDS;
    let limit = match (hard, soft_cuts) {
        (0, false) => {
            return Finding::ok(
                OUTPUT_BUFFER,
                "no limit for subscribers: a stalled one is never disconnected, and the server's memory grows meanwhile",
            );
        }
        (0, true) => soft,
        (hard, true) => hard.min(soft),
        (hard, false) => hard,
    };
    let events = limit / EVENT_BYTES;
    let mut found = format!(
        "a reader that stalls is cut off when about {} events wait for it",
        count(events)
    );
    if soft > 0 && soft < limit {
        let soft_events = count(soft / EVENT_BYTES);
        found += &format!(", or {soft_events} for {seconds} s");
    }
    if events < EVENTS_MIN {
        return Finding::warning(
            OUTPUT_BUFFER,
            format!("{found}: an ordinary burst can do that, and tasks then wait for the sweep"),
        )
        .remedy(format!(
            "set `{BUFFER_LIMIT} \"pubsub 32mb 8mb 60\"` or more, also in redis.conf"
        ));
    }
    Finding::ok(OUTPUT_BUFFER, found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assertions::assert_is;
    use lapsed::diagnosis::Severity;

    #[test]
    fn every_policy_but_noeviction_is_a_warning() {
        let info = |policy, limit| {
            Facts::from([
                ("maxmemory_policy", policy),
                ("maxmemory", limit),
                ("used_memory", "950000"),
            ])
        };
        for policy in ["allkeys-lru", "volatile-ttl", "volatile-lru", "allkeys-lfu"] {
            assert_is(&eviction(&info(policy, "0")), Severity::Warning, policy);
            assert_is(
                &eviction(&info(policy, "1048576")),
                Severity::Warning,
                "above 1 MiB",
            );
        }
        assert_is(
            &eviction(&info("noeviction", "0")),
            Severity::Ok,
            "no key is evicted",
        );
        assert_is(
            &eviction(&info("noeviction", "1000000")),
            Severity::Warning,
            "cannot be armed",
        );
        assert_is(
            &eviction(&info("noeviction", "2000000")),
            Severity::Ok,
            "no key is evicted",
        );
    }

    #[test]
    fn the_output_buffer_is_counted_in_events() {
        let default = "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60";
        let judged = output_buffer(Some(default));
        assert_is(
            &judged,
            Severity::Ok,
            "about 284,359 events wait for it, or 71,089 for 60 s",
        );
        let told = [
            ("pubsub 262144 131072 60", Severity::Warning, "2,221 events"),
            (
                "pubsub 33554432 131072 1",
                Severity::Warning,
                "1,110 events",
            ),
            ("pubsub 0 131072 1", Severity::Warning, "1,110 events"),
            ("pubsub 0 0 0", Severity::Ok, "never disconnected"),
            ("normal 0 0 0", Severity::Note, "does not show"),
        ];
        for (setting, severity, part) in told {
            assert_is(&output_buffer(Some(setting)), severity, part);
        }
    }
}
