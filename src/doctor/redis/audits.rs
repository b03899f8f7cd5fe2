//! Audit check: how long an audit of all keys takes.

use std::time::Duration;

use lapsed::diagnosis::Finding;
use lapsed_core::format::{count, duration};
use lapsed_redis::Facts;

pub(super) const AUDITS: &str = "redis.audits";

/// Keys that an audit processes per second under load, including its pauses: each key, then each row. Measured
/// with 10,000,000 keys on two cores; on idle servers it is 15,000.
const AUDITED_PER_S: u64 = 9_000;

/// Warns if an audit takes longer than the interval of the sentinels, so that the next one is requested before it
/// ends. `None`: it does not.
pub(super) fn audits(info: &Facts, database: i64, between: Duration) -> Option<Finding> {
    let keys = info.expiring_keys(database);
    let takes = Duration::from_secs(keys / AUDITED_PER_S);
    if takes <= between {
        return None;
    }
    let most = between.as_secs().saturating_mul(AUDITED_PER_S);
    let found = format!(
        "{} keys expire: under load an audit takes about {}, and sentinels request one every {}",
        count(keys),
        duration(takes),
        duration(between),
    );
    Some(Finding::warning(AUDITS, found).remedy(format!(
        "set `redis.arm_horizon`, such as \"6h\", so that at most {} keys are armed at a time: tasks due later need none",
        count(most)
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assertions::assert_is;
    use lapsed::diagnosis::Severity;

    #[test]
    fn an_audit_longer_than_the_sentinel_interval_is_a_warning() {
        let judge = |expires: u64| {
            let database = format!("keys=9,expires={expires}");
            let info = Facts::from([("db0", database.as_str())]);
            audits(&info, 0, Duration::from_secs(900))
        };
        assert!(judge(8_000_000).is_none());
        let found = judge(10_000_000).expect("a warning");
        assert_is(&found, Severity::Warning, "10,000,000 keys expire");
        assert!(found.found.contains("18 min"), "{}", found.found);
        let remedy = found.remedy.expect("a remedy");
        assert!(remedy.contains("at most 8,100,000 keys"), "{remedy}");
    }
}
