//! The partitions of the archive: one for each month by when its tasks ended, in UTC, and one for all later times.
//!
//! The first partition takes everything older, too. A row that has no partition of its month, since nobody might create it,
//! is in the last one until it is divided.

use std::time::Duration;

use sqlx::{MySqlConnection, Row as _};

use super::month::{MONTHS_AHEAD, Month};
use super::{MigrateError, Step};
use lapsed_core::task::{TableName, UnixMs};

/// Maximum number of partitions that one statement creates. The next one creates more.
const CREATED_MAX: usize = 60;

/// The partitions of a table.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Partitions {
    /// Those with an end, by name, in order.
    pub bounded: Vec<(String, UnixMs)>,
    /// The one for all later times.
    pub later: Option<String>,
}

impl Partitions {
    /// Reads the partitions of the archive of a table.
    pub async fn read(conn: &mut MySqlConnection, table: &TableName) -> Result<Self, MigrateError> {
        const PARTITIONS: &str = "SELECT CAST(PARTITION_NAME AS CHAR) AS name, CAST(PARTITION_DESCRIPTION AS CHAR) AS until \
             FROM information_schema.PARTITIONS \
             WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ? AND PARTITION_NAME IS NOT NULL ORDER BY PARTITION_ORDINAL_POSITION";
        let failed = || MigrateError::sql("read the partitions of the archive");
        let rows = sqlx::query(PARTITIONS)
            .bind(table.archive().to_string())
            .fetch_all(conn)
            .await
            .map_err(failed())?;
        let mut partitions = Self::default();
        for row in rows {
            let name: String = row.try_get("name").map_err(failed())?;
            let until: Option<String> = row.try_get("until").map_err(failed())?;
            match until.as_deref().unwrap_or_default().parse() {
                Ok(until) => partitions.bounded.push((name, UnixMs(until))),
                Err(_) => partitions.later = Some(name),
            }
        }
        Ok(partitions)
    }

    /// True if the table has none.
    pub fn is_empty(&self) -> bool {
        self.bounded.is_empty() && self.later.is_none()
    }

    /// Returns the steps that prepare the table for months to come, and drop the partitions whose rows are all older than
    /// `keep`.
    pub fn steps(&self, now: UnixMs, keep: Option<Duration>) -> Vec<Step> {
        let mut steps = Vec::new();
        let present = Month::of(now);
        let first = match self.bounded.last() {
            Some((_, until)) => Month::of(*until),
            None => present,
        };
        let last = present.plus(MONTHS_AHEAD);
        let months: Vec<Month> = (0..)
            .map(|ahead| first.plus(ahead))
            .take_while(|month| *month <= last)
            .take(CREATED_MAX)
            .collect();
        if !months.is_empty() {
            let later = self.later.clone();
            steps.push(Step::AddPartitions { months, later });
        }
        if let Some(keep) = keep {
            let oldest = now.minus(keep);
            let names = self.bounded.iter().filter(|(_, until)| *until <= oldest);
            let names: Vec<String> = names.map(|(name, _)| name.clone()).collect();
            if !names.is_empty() {
                steps.push(Step::DropPartitions(names));
            }
        }
        steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::migrate::month::LATER;

    fn at(text: &str) -> UnixMs {
        let at: jiff::Timestamp = text.parse().unwrap();
        UnixMs(at.as_millisecond())
    }

    fn partitions(first: &str, months: i32) -> Partitions {
        let first = Month::of(at(first));
        let month = |ahead| (first.plus(ahead).to_string(), first.plus(ahead).end());
        Partitions {
            bounded: (0..months).map(month).collect(),
            later: Some(LATER.to_owned()),
        }
    }

    fn names(steps: &[Step]) -> Vec<String> {
        let names = steps.iter().flat_map(|step| match step {
            Step::AddPartitions { months, .. } => {
                months.iter().map(|month| format!("+{month}")).collect()
            }
            Step::DropPartitions(names) => names.iter().map(|name| format!("-{name}")).collect(),
            _ => Vec::new(),
        });
        names.collect()
    }

    const YEAR: Option<Duration> = Some(Duration::from_secs(365 * 86_400));

    #[test]
    fn each_month_another_partition_is_created() {
        let steps = |now| names(&partitions("2026-11-21T20:00:00Z", 4).steps(at(now), None));
        assert!(steps("2026-11-30T23:59:59Z").is_empty());
        assert_eq!(steps("2026-12-01T00:00:00Z"), ["+p2027_03"]);
        assert_eq!(
            steps("2027-04-02T00:00:00Z"),
            [
                "+p2027_03",
                "+p2027_04",
                "+p2027_05",
                "+p2027_06",
                "+p2027_07"
            ]
        );
    }

    #[test]
    fn a_partition_is_dropped_once_all_of_its_rows_are_too_old() {
        let steps = |now| names(&partitions("2025-11-21T20:00:00Z", 30).steps(at(now), YEAR));
        assert!(steps("2026-11-30T23:59:59Z").is_empty());
        assert_eq!(steps("2026-12-01T00:00:00Z"), ["-p2025_11"]);
        assert_eq!(steps("2027-01-01T00:00:00Z"), ["-p2025_11", "-p2025_12"]);
    }

    #[test]
    fn an_archive_that_was_left_alone_for_years_is_brought_up_to_date_in_steps() {
        let mut there = partitions("2016-01-01T00:00:00Z", 1);
        let now = at("2026-11-21T20:00:00Z");
        for count in [CREATED_MAX, CREATED_MAX, 13] {
            let steps = there.steps(now, None);
            let [Step::AddPartitions { months, later }] = &steps[..] else {
                panic!("{steps:?}");
            };
            assert_eq!(later.as_deref(), Some(LATER));
            assert_eq!(months.len(), count);
            let new = months.iter().map(|month| (month.to_string(), month.end()));
            there.bounded.extend(new);
        }
        assert!(there.steps(now, None).is_empty());
    }
}
