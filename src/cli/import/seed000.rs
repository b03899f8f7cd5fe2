//! Seed 000: the sorted set `delay_queue_job` has the ids of rows of `delay_queue`, with their due time. A row has the class,
//! the method and the data as PHP serializes them, and how often it was retried.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::Context;
use async_trait::async_trait;
use lapsed::task::{Contents, PAYLOAD_BYTES_MAX};
use sqlx::Row as _;

use super::job::{Found, Job, contents, due_by_size, is_own, runs};
use super::php::{PhpValue, unserialize};
use super::sets::{Page, Sets};
use super::source::{Fate, Source, Taken};
use super::store::{Entry, RemovalScript, Store};
use super::table::{Table, places};

/// Rows of ids. Primary key. `params` has at most a few bytes more than a payload.
const ROWS: &str = "SELECT CAST(id AS UNSIGNED) AS id, CAST(status AS SIGNED) AS status, CAST(retry_times AS SIGNED) AS retry_times, \
       CAST(LEFT(params, {longest}) AS BINARY) AS params, {tag} AS tag FROM `{t}` WHERE id IN ({ids})";

/// Rows whose entries are removed: 30 is cancelled. Primary key.
const TAKEN: &str = "UPDATE `{t}` SET status = 30, message = 'imported by lapsed' WHERE id IN ({ids}) AND status = 1";

/// Longest `params` that are read.
const PARAMS_MAX: usize = PAYLOAD_BYTES_MAX + 4096;

pub struct Seed000 {
    store: Store,
    table: Table,
    sets: Sets,
    removal: RemovalScript,
    /// Whether rows have an `ext_string`; unknown at first.
    has_tags: Option<bool>,
}

struct Row {
    waits: bool,
    retries: i64,
    params: Vec<u8>,
    tag: Option<String>,
}

impl Seed000 {
    pub fn open(store: Store, set: &str, table: Table) -> Self {
        Self {
            store,
            table,
            sets: Sets::new(vec![(Arc::from(set), Arc::from(set))]),
            removal: RemovalScript::new("", ""),
            has_tags: None,
        }
    }

    async fn rows(&mut self, ids: &[u64]) -> anyhow::Result<HashMap<u64, Row>> {
        if ids.is_empty() {
            return Ok(HashMap::new());
        }
        let has_tags = match self.has_tags {
            Some(has_tags) => has_tags,
            None => {
                let columns = self.table.columns().await?;
                columns
                    .iter()
                    .any(|name| name.eq_ignore_ascii_case("ext_string"))
            }
        };
        self.has_tags = Some(has_tags);
        let tag = match has_tags {
            true => "NULLIF(CAST(ext_string AS CHAR), '')",
            false => "NULL",
        };
        let sql = ROWS
            .replace("{tag}", tag)
            .replace("{ids}", &places(ids.len()))
            .replace("{longest}", &(PARAMS_MAX + 1).to_string());
        let select = ids
            .iter()
            .fold(self.table.statement(&sql), |select, id| select.bind(*id));
        let rows = self.table.rows(select).await?;
        let row = |row: &sqlx::mysql::MySqlRow| -> sqlx::Result<(u64, Row)> {
            let found = Row {
                waits: row.try_get::<i64, _>("status")? == 1,
                retries: row.try_get::<Option<i64>, _>("retry_times")?.unwrap_or(0),
                params: row.try_get::<Option<_>, _>("params")?.unwrap_or_default(),
                tag: row.try_get("tag")?,
            };
            Ok((row.try_get("id")?, found))
        };
        let rows: sqlx::Result<_> = rows.iter().map(row).collect();
        rows.with_context(|| format!("read the rows of `{}`", self.table.name()))
    }
}

#[async_trait]
impl Source for Seed000 {
    async fn count(&mut self) -> anyhow::Result<Option<u64>> {
        self.sets.count(&self.store).await.map(Some)
    }

    async fn page(&mut self) -> anyhow::Result<Option<Vec<Found>>> {
        let Some(page) = self.sets.page(&self.store).await? else {
            return Ok(None);
        };
        let ids: Vec<u64> = page.entries.iter().filter_map(id).collect();
        let rows = self.rows(&ids).await?;
        let table = self.table.name().to_string();
        let found = page.entries.iter().map(|entry| {
            job(entry, &rows, &page, &table)
                .unwrap_or_else(|why| Found::refused(&entry.member, why))
        });
        Ok(Some(found.collect()))
    }

    /// The entry first: without it the row does not run.
    async fn take(&mut self, jobs: &[Job]) -> anyhow::Result<Taken> {
        let mut taken = Taken::default();
        let Some(first) = jobs.first() else {
            return Ok(taken);
        };
        let set = &first.place.container;
        let entries: Vec<_> = jobs.iter().map(|job| &job.place).collect();
        let removed = self.store.take(set, "", &entries, &self.removal).await?;
        taken.add(0, &removed);
        let removed: Vec<&Job> = jobs
            .iter()
            .zip(removed)
            .filter_map(|(job, removed)| (removed == Fate::Taken).then_some(job))
            .collect();
        if !removed.is_empty() {
            let sql = TAKEN.replace("{ids}", &places(removed.len()));
            let update = removed
                .iter()
                .fold(self.table.statement(&sql), |update, job| {
                    update.bind(String::from_utf8_lossy(&job.id).into_owned())
                });
            self.table.change(update).await?;
        }
        Ok(taken)
    }
}

/// The id of a row, if the member is one.
fn id(entry: &Entry) -> Option<u64> {
    let id: u64 = std::str::from_utf8(&entry.member).ok()?.parse().ok()?;
    // `007` and `+7` would be other members for the same row.
    (id.to_string().as_bytes() == entry.member).then_some(id)
}

fn job(entry: &Entry, rows: &HashMap<u64, Row>, page: &Page, table: &str) -> Result<Found, String> {
    if is_own(entry.at()) {
        return Ok(Found::Settled);
    }
    let id = id(entry).ok_or("the member is no id of a row")?;
    let row = rows
        .get(&id)
        .ok_or_else(|| format!("`{table}` has no such row"))?;
    if !row.waits {
        return Ok(Found::Settled);
    }
    if row.params.len() > PARAMS_MAX {
        return Err(format!("`params` has more than {PARAMS_MAX} bytes"));
    }
    let params = unserialize(&row.params).map_err(|problem| format!("`params` {problem}"))?;
    let text = |name: &str| match params.get(name) {
        Some(PhpValue::Text(text)) => Ok(text.clone()),
        Some(_) => Err(format!("`{name}` in `params` is no string")),
        None => Err(format!("`params` has no `{name}`")),
    };
    let class = text("class")?;
    // `\App\Mail` and `App\Mail` are the same class.
    let class = class.strip_prefix('\\').unwrap_or(&class).to_owned();
    let method = text("method")?;
    Ok(Job {
        queue: Arc::clone(&page.queue),
        name: format!("{class}@{method}"),
        class,
        method,
        attempts: runs(row.retries.max(0)),
        contents: Contents {
            tag: row.tag.clone(),
            ..contents(params.get("data").map(PhpValue::json), None)
        },
        ..Job::new(
            entry.member.clone(),
            due_by_size(entry.at())?,
            entry.place(&page.set),
        )
    }
    .into())
}
