//! Seed 003: a table of task keys with their due times, and the Redis keys of the same names, which expire then.

use std::collections::HashSet;
use std::sync::Arc;

use anyhow::{Context, bail};
use async_trait::async_trait;
use lapsed::clock::LedgerClock;
use lapsed::task::{TaskKey, UnixMs};
use sqlx::Row as _;
use sqlx::mysql::MySqlRow;

use super::job::{Found, Job, Place};
use super::live_keys::LiveKeys;
use super::source::{Source, Taken};
use super::store::Store;
use super::table::{PAGE, Table, places};

/// What a row was when it was read.
const VERSION: &str = "CONCAT_WS('|', id, end_time)";

/// The next unprocessed rows by id. Primary key.
const ROWS: &str = "SELECT CAST(id AS UNSIGNED) AS id, CAST(`key` AS BINARY) AS name, CAST(end_time * 1000 AS SIGNED) AS due_ms, {version} AS version \
     FROM `{t}` WHERE id > ? AND status = 0{live} ORDER BY id LIMIT {page}";

/// Those of these keys that have an unprocessed row. The index on the key.
const WITH_ROW: &str =
    "SELECT DISTINCT CAST(`key` AS BINARY) FROM `{t}` WHERE `key` IN ({keys}) AND status = 0{live}";

const TAKEN: &str =
    "UPDATE `{t}` SET status = 1 WHERE id IN ({ids}) AND status = 0 AND {version} IN ({versions})";

/// Condition of tables with the column `sts`.
const LIVE: &str = " AND sts = 0";

/// Container of jobs that have a row; others are only keys.
const OF_ROW: &str = "row";

pub struct Seed003 {
    store: Store,
    table: Table,
    live: &'static str,
    last: u64,
    /// The keys, read after the rows.
    keys: LiveKeys,
    rows_are_read: bool,
    clock: LedgerClock,
}

impl Seed003 {
    pub async fn open(
        store: Store,
        prefix: &str,
        mut table: Table,
        clock: LedgerClock,
    ) -> anyhow::Result<Self> {
        let columns = table.columns().await?;
        let has = |name: &str| columns.iter().any(|column| column == name);
        if has("lease_until") {
            bail!(
                "`{}` is a ledger of lapsed already: a table that stays in its database is adopted by `lapsed migrate`",
                table.name()
            );
        }
        Ok(Self {
            store,
            live: if has("sts") { LIVE } else { "" },
            table,
            last: 0,
            keys: LiveKeys::new(prefix),
            rows_are_read: false,
            clock,
        })
    }

    async fn rows(&mut self) -> anyhow::Result<Vec<Found>> {
        let sql = ROWS
            .replace("{version}", VERSION)
            .replace("{live}", self.live)
            .replace("{page}", &PAGE.to_string());
        let select = self.table.statement(&sql).bind(self.last);
        let rows = self.table.rows(select).await?;
        let mut page = Vec::with_capacity(rows.len());
        for row in &rows {
            self.last = row.try_get("id").context("read the id of a row")?;
            page.push(of_row(row).context("read a row")?);
        }
        Ok(page)
    }

    /// Keys that have no row.
    async fn keys(&mut self) -> anyhow::Result<Option<Vec<Found>>> {
        let Some(keys) = self.keys.page(&self.store).await? else {
            return Ok(None);
        };
        let names = keys.iter().map(|(key, _)| key.as_str().to_owned());
        let booked = self.with_row(names.collect()).await?;
        let now = self.clock.now();
        let found = keys
            .into_iter()
            .filter(|(key, _)| !booked.contains(key.as_str().as_bytes()));
        let found = found.map(|(key, ttl)| {
            let place = Place {
                member: key.as_str().as_bytes().to_vec(),
                version: ttl.expires_ms.to_string(),
                ..Place::default()
            };
            Found::from(Job {
                due_is_estimated: true,
                ..of_key(key, now.plus(ttl.remaining), place)
            })
        });
        Ok(Some(found.collect()))
    }

    async fn with_row(&mut self, names: Vec<String>) -> anyhow::Result<HashSet<Vec<u8>>> {
        if names.is_empty() {
            return Ok(HashSet::new());
        }
        let sql = WITH_ROW
            .replace("{keys}", &places(names.len()))
            .replace("{live}", self.live);
        let select = names
            .into_iter()
            .fold(self.table.statement(&sql), |select, name| select.bind(name));
        let rows = self.table.rows(select).await?;
        let names = rows.iter().map(|row| row.try_get(0));
        names.collect::<sqlx::Result<_>>().context("read a key")
    }
}

#[async_trait]
impl Source for Seed003 {
    async fn count(&mut self) -> anyhow::Result<Option<u64>> {
        // Neither the rows that wait nor the keys can be counted without reading them.
        Ok(None)
    }

    async fn page(&mut self) -> anyhow::Result<Option<Vec<Found>>> {
        if !self.rows_are_read {
            let page = self.rows().await?;
            if !page.is_empty() {
                return Ok(Some(page));
            }
            self.rows_are_read = true;
        }
        self.keys().await
    }

    /// The key is deleted only if it expires at the due time, and lapsed has not armed it.
    async fn take(&mut self, jobs: &[Job]) -> anyhow::Result<Taken> {
        let of_row = |job: &&Job| &*job.place.container == OF_ROW;
        let (rows, keys): (Vec<&Job>, Vec<&Job>) = jobs.iter().partition(of_row);
        let mut taken = 0;
        if !rows.is_empty() {
            let sql = TAKEN
                .replace("{version}", VERSION)
                .replace("{ids}", &places(rows.len()))
                .replace("{versions}", &places(rows.len()));
            let mut update = self.table.statement(&sql);
            for job in &rows {
                update = update.bind(String::from_utf8_lossy(&job.place.content).into_owned());
            }
            for job in &rows {
                update = update.bind(job.place.version.clone());
            }
            taken += self.table.change(update).await?.rows_affected();
        }
        let due = |job: &&Job| match of_row(job) {
            true => job.due.0,
            false => job.place.version.parse().unwrap_or(job.due.0),
        };
        let all: Vec<(&[u8], i64)> = jobs
            .iter()
            .map(|job| (&job.place.member[..], due(&job)))
            .collect();
        let deleted = self.keys.delete(&self.store, &all).await?;
        let of_keys = jobs.iter().zip(deleted);
        let of_keys = of_keys.filter(|(job, deleted)| *deleted && !of_row(job));
        Ok(Taken::count(taken + of_keys.count().min(keys.len()) as u64))
    }
}

fn of_row(row: &MySqlRow) -> sqlx::Result<Found> {
    let (id, name): (u64, Vec<u8>) = (row.try_get("id")?, row.try_get("name")?);
    let due = UnixMs(row.try_get("due_ms")?);
    let place = Place {
        container: Arc::from(OF_ROW),
        member: name.clone(),
        version: row.try_get("version")?,
        content: id.to_string().into_bytes(),
    };
    Ok(match std::str::from_utf8(&name).map(TaskKey::parse) {
        Ok(Ok(key)) => of_key(key, due, place).into(),
        Ok(Err(error)) => Found::refused(&name, error.to_string()),
        Err(_) => Found::refused(&name, "the key is not UTF-8"),
    })
}

fn of_key(key: TaskKey, due: UnixMs, place: Place) -> Job {
    Job {
        key: Some(key.clone()),
        ..Job::new(key.as_str().as_bytes(), due, place)
    }
}
