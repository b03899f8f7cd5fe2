//! Months, and the definitions of their partitions.

use std::fmt;

use jiff::ToSpan as _;
use jiff::civil::Date;
use jiff::tz::TimeZone;

use lapsed_core::task::UnixMs;

/// Name of the partition for all later times.
pub(super) const LATER: &str = "p_later";

/// Number of months, after the present one, that have a partition: so long may an upgrade of privileges wait.
pub(super) const MONTHS_AHEAD: i32 = 3;

/// A month, in UTC. Displayed as the name of its partition: `p2026_11`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Month(Date);

impl Month {
    /// Returns the month of a time.
    #[must_use]
    pub fn of(at: UnixMs) -> Self {
        let at = jiff::Timestamp::from_millisecond(at.0).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
        Self(at.to_zoned(TimeZone::UTC).date().first_of_month())
    }

    /// Returns the month that is `months` months later.
    #[must_use]
    pub fn plus(self, months: i32) -> Self {
        Self(self.0.saturating_add(months.months()))
    }

    /// Returns the start of the next month.
    #[must_use]
    pub fn end(self) -> UnixMs {
        let end = self.plus(1).0.to_zoned(TimeZone::UTC);
        UnixMs(end.map_or(i64::MAX, |end| end.timestamp().as_millisecond()))
    }
}

impl fmt::Display for Month {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{:04}_{:02}", self.0.year(), self.0.month())
    }
}

/// The clause of `CREATE TABLE` for an archive that is created at this time.
pub(super) fn clause(now: UnixMs) -> String {
    let first = Month::of(now);
    let months: Vec<Month> = (0..=MONTHS_AHEAD).map(|ahead| first.plus(ahead)).collect();
    format!(
        " PARTITION BY RANGE (`ended_ms`) ({})",
        definitions(&months)
    )
}

/// The definitions of partitions, and of the one for all later times.
pub(super) fn definitions(months: &[Month]) -> String {
    let month =
        |month: &Month| format!("PARTITION `{month}` VALUES LESS THAN ({}), ", month.end().0);
    let months: String = months.iter().map(month).collect();
    format!("{months}PARTITION `{LATER}` VALUES LESS THAN MAXVALUE")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> UnixMs {
        let at: jiff::Timestamp = text.parse().unwrap();
        UnixMs(at.as_millisecond())
    }

    #[test]
    fn a_month_ends_where_the_next_one_begins() {
        let month = Month::of(at("2026-11-30T23:59:59.999Z"));
        assert_eq!(month.to_string(), "p2026_11");
        assert_eq!(month.end(), at("2026-12-01T00:00:00Z"));
        assert_eq!(Month::of(month.end()), month.plus(1));
        assert_eq!(month.plus(2).to_string(), "p2027_01");
    }

    #[test]
    fn a_new_archive_has_partitions_for_months_to_come() {
        assert_eq!(
            clause(at("2026-11-21T20:00:00Z")),
            " PARTITION BY RANGE (`ended_ms`) (PARTITION `p2026_11` VALUES LESS THAN (1796083200000), \
             PARTITION `p2026_12` VALUES LESS THAN (1798761600000), \
             PARTITION `p2027_01` VALUES LESS THAN (1801440000000), \
             PARTITION `p2027_02` VALUES LESS THAN (1803859200000), \
             PARTITION `p_later` VALUES LESS THAN MAXVALUE)"
        );
    }
}
