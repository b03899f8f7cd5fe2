//! Seed 002: the table `jobs` has JSON payloads, and when each is available.

use anyhow::Context;
use async_trait::async_trait;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use lapsed::task::{PAYLOAD_BYTES_MAX, UnixMs};
use serde::Deserialize;
use sqlx::Row as _;
use sqlx::mysql::MySqlRow;

use super::job::{Found, Job, Place, contents, runs};
use super::source::{Source, Taken};
use super::table::{PAGE, Table, places};

/// What a row was when it was read.
const VERSION: &str = "CONCAT_WS('|', id, attempts, available_at, CRC32(payload))";

/// The next rows by id. Primary key, so that a row that is moved meanwhile is neither missed nor read twice.
const ROWS: &str = "SELECT CAST(id AS UNSIGNED) AS id, CAST(attempts AS SIGNED) AS attempts, CAST(available_at AS CHAR) AS available_at, \
       CAST(LENGTH(payload) AS SIGNED) AS length, IF(LENGTH(payload) > {longest}, NULL, CAST(payload AS CHAR)) AS payload, {version} AS version \
     FROM `{t}` WHERE id > ? AND status = 'pending' ORDER BY id LIMIT {page}";

const TAKEN: &str = "UPDATE `{t}` SET status = 'completed' WHERE id IN ({ids}) AND status = 'pending' AND {version} IN ({versions})";

pub struct Seed002 {
    table: Table,
    /// Time zone of `available_at`, which has none.
    zone: TimeZone,
    last: u64,
}

/// What the payload must have.
#[derive(Deserialize)]
struct Payload {
    r#type: String,
}

impl Seed002 {
    pub fn open(table: Table, zone: TimeZone) -> Self {
        Self {
            table,
            zone,
            last: 0,
        }
    }
}

#[async_trait]
impl Source for Seed002 {
    async fn count(&mut self) -> anyhow::Result<Option<u64>> {
        let count = "SELECT COUNT(*) FROM `{t}` WHERE status = 'pending'";
        let count = self.table.statement(count);
        let rows = self.table.rows(count).await?;
        let count: i64 = rows.first().context("count the jobs")?.try_get(0)?;
        Ok(Some(u64::try_from(count)?))
    }

    async fn page(&mut self) -> anyhow::Result<Option<Vec<Found>>> {
        let sql = ROWS
            .replace("{version}", VERSION)
            .replace("{longest}", &PAYLOAD_BYTES_MAX.to_string())
            .replace("{page}", &PAGE.to_string());
        let select = self.table.statement(&sql).bind(self.last);
        let rows = self.table.rows(select).await?;
        let mut page = Vec::with_capacity(rows.len());
        for row in &rows {
            let id: u64 = row.try_get("id").context("read the id of a job")?;
            self.last = id;
            let found = job(row, id, &self.zone);
            page.push(found.unwrap_or_else(|why| Found::refused(id.to_string().as_bytes(), why)));
        }
        Ok((!page.is_empty()).then_some(page))
    }

    async fn remarks(&mut self) -> anyhow::Result<Vec<String>> {
        let count = self
            .table
            .statement("SELECT COUNT(*) FROM `{t}` WHERE status = 'processing'");
        let rows = self.table.rows(count).await?;
        let count: i64 = rows.first().context("count the jobs")?.try_get(0)?;
        let table = self.table.name();
        Ok(match count {
            0 => Vec::new(),
            count => vec![format!(
                "{count} rows of `{table}` are `processing`, and were not read: a worker runs them, or was killed. When no \
                 worker runs any more, set those that shall run again to `pending`, and import again"
            )],
        })
    }

    async fn take(&mut self, jobs: &[Job]) -> anyhow::Result<Taken> {
        let sql = TAKEN
            .replace("{version}", VERSION)
            .replace("{ids}", &places(jobs.len()))
            .replace("{versions}", &places(jobs.len()));
        let mut update = self.table.statement(&sql);
        for job in jobs {
            update = update.bind(String::from_utf8_lossy(&job.id).into_owned());
        }
        for job in jobs {
            update = update.bind(job.place.version.clone());
        }
        let changed = self.table.change(update).await?;
        Ok(Taken::count(changed.rows_affected()))
    }
}

fn job(row: &MySqlRow, id: u64, zone: &TimeZone) -> Result<Found, String> {
    let unreadable = |error: sqlx::Error| format!("cannot be read: {error}");
    let payload: Option<String> = row.try_get("payload").map_err(unreadable)?;
    let length: i64 = row.try_get("length").map_err(unreadable)?;
    let payload = payload.ok_or_else(|| format!("`payload` has {length} bytes"))?;
    let Payload { r#type: name } = serde_json::from_str(&payload)
        .map_err(|error| format!("`payload` has no text `type`: {error}"))?;
    let text: String = row.try_get("available_at").map_err(unreadable)?;
    let due = due(&text, zone)?;
    let attempts: i64 = row.try_get("attempts").map_err(unreadable)?;
    let place = Place {
        version: row.try_get("version").map_err(unreadable)?,
        ..Place::default()
    };
    Ok(Job {
        name,
        contents: contents(Some(payload), None),
        attempts: runs(attempts.max(0)),
        ..Job::new(id.to_string(), due, place)
    }
    .into())
}

/// A date and time of this zone. Of a time that occurs twice, the first; a time that is skipped is moved by the gap.
fn due(text: &str, zone: &TimeZone) -> Result<UnixMs, String> {
    let local: Result<DateTime, _> = text.parse();
    let moment = local.and_then(|local| local.to_zoned(zone.clone()));
    match moment {
        Ok(moment) => Ok(UnixMs(moment.timestamp().as_millisecond())),
        Err(error) => Err(format!("`available_at` is `{text}`: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_without_a_zone_is_read_in_the_zone_that_is_given() {
        let berlin = TimeZone::get("Europe/Berlin").unwrap();
        let times = [
            ("2026-11-22 12:00:00", TimeZone::UTC, 1_795_348_800_000),
            ("2026-11-22 12:00:00.250", TimeZone::UTC, 1_795_348_800_250),
            ("2026-11-22 12:00:00", berlin.clone(), 1_795_345_200_000),
            // 02:30 occurs twice, and does not occur.
            ("2026-10-25 02:30:00", berlin.clone(), 1_792_888_200_000),
            ("2026-03-29 02:30:00", berlin, 1_774_747_800_000),
        ];
        for (text, zone, ms) in times {
            assert_eq!(due(text, &zone), Ok(UnixMs(ms)), "{text}");
        }
        assert!(due("0000-00-00 00:00:00", &TimeZone::UTC).is_err());
    }
}
