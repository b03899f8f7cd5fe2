//! Cancellation by filter.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use tokio::time::Instant;

use super::MysqlLedger;
use super::connection::{Conn, Statement, about_rows, statement};
use super::decode::{self, Cancellable};
use super::error::error;
use super::filter::Conditions;
use super::queries::{self, padded};
use lapsed_core::ledger::{CancelAnswer, CancelPage, LedgerError, ListCursor, ListFilter, Owner};

/// Index entries of one page: some megabytes of keys. Connections wait for each other at the end of a page, so pages are
/// large.
const PAGE: usize = 49_152;

/// Rows of one statement: half as many commits as with smaller batches; a daemon that claims one of them waits for
/// milliseconds.
const BATCH: usize = 1_024;

/// Batches of a page in flight: while one commits, another is read.
const CONNECTIONS: usize = 3;

/// How long to wait for locked rows, and how often to try them again.
const LOCK_PATIENCE: Duration = Duration::from_secs(3);
const LOCK_PAUSE: Duration = Duration::from_millis(200);

impl MysqlLedger {
    pub(super) async fn cancel_one_page(
        &self,
        filter: &ListFilter,
        dry_run: bool,
    ) -> Result<CancelPage, LedgerError> {
        filter.check_cancel()?;
        let (ids, next) = self.cancellable_ids(filter).await?;
        let batches: Vec<Vec<u64>> = ids.chunks(BATCH).map(<[u64]>::to_vec).collect();
        let pages: Vec<CancelPage> = stream::iter(batches)
            .map(|ids| self.cancel_rows(ids, filter, dry_run))
            .buffer_unordered(CONNECTIONS)
            .try_collect()
            .await?;
        let mut whole = CancelPage {
            next,
            ..CancelPage::default()
        };
        for page in pages {
            whole.cancelled.extend(page.cancelled);
            whole.malformed += page.malformed;
            whole.running.extend(page.running);
            whole.locked += page.locked;
        }
        Ok(whole)
    }

    /// Finds rows that may match in an index alone: a page is cheap however many have finished. The index of tags and that
    /// of keys are read backwards, so that the pages do not follow tasks that are created meanwhile.
    async fn cancellable_ids(
        &self,
        filter: &ListFilter,
    ) -> Result<(Vec<u64>, Option<ListCursor>), LedgerError> {
        let question = match (&filter.tag, &filter.class, &filter.prefix) {
            (Some(tag), _, _) => {
                let before = match filter.cursor {
                    Some(ListCursor::Row(id)) => id,
                    _ => u64::MAX,
                };
                statement(self.queries.plain(queries::IDS_OF_TAG))
                    .bind(tag.clone())
                    .bind(before)
            }
            (None, None, None) => return self.unfinished_ids(filter, PAGE).await,
            _ => {
                let (begin, end) = filter.key_range();
                let end = match &filter.cursor {
                    Some(ListCursor::Key(key)) => key.clone(),
                    _ => end,
                };
                statement(self.queries.plain(queries::IDS_OF_KEYS))
                    .bind(begin)
                    .bind(end)
            }
        };
        let mut conn = self.pools.acquire().await?;
        let found = conn
            .fetch(question.bind(PAGE as u64))
            .await
            .map_err(error)?;
        let ids = found.iter().map(decode::id).collect::<Result<_, _>>();
        let next = match found.last() {
            Some(last) if found.len() == PAGE => Some(match filter.tag {
                Some(_) => ListCursor::Row(decode::id(last).map_err(error)?),
                None => ListCursor::Key(decode::text_key(last).map_err(error)?),
            }),
            _ => None,
        };
        Ok((ids.map_err(error)?, next))
    }

    /// Reads which of these rows to cancel, cancels them, and reads which of them are not cancelled.
    async fn cancel_rows(
        &self,
        ids: Vec<u64>,
        filter: &ListFilter,
        dry_run: bool,
    ) -> Result<CancelPage, LedgerError> {
        let mut page = CancelPage::default();
        let mut conn = self.pools.acquire().await?;
        if let (false, Some(tag)) = (dry_run, filter.only_tag()) {
            return self.cancel_tagged(&mut conn, ids, tag).await.map_err(error);
        }
        let found = self.cancellable(&mut conn, &ids, filter).await;
        let found = found.map_err(error)?;
        if found.is_empty() {
            return Ok(page);
        }
        if dry_run {
            let (leased, free): (Vec<_>, Vec<_>) = found.into_iter().partition(|row| row.leased);
            page.running = leased.into_iter().filter_map(|row| row.key).collect();
            free.into_iter().for_each(|row| page.count(row.key));
            return Ok(page);
        }
        let ids: Vec<u64> = found.iter().map(|row| row.id).collect();
        // A row may have changed since it was read.
        let cancel = |batch: &[u64]| self.restricted(queries::CANCEL_ROWS, batch, filter);
        let locked = self
            .cancel_with_retries(&mut conn, ids.clone(), cancel)
            .await;
        let locked = locked.map_err(error)?;
        page.locked = locked.len();
        let others = conn
            .fetch(about_rows(&self.queries, queries::NOT_CANCELLED, &ids))
            .await;
        let others = others.map_err(error)?;
        let others = others.iter().map(decode::not_cancelled);
        let others: HashMap<u64, CancelAnswer> =
            others.collect::<sqlx::Result<_>>().map_err(error)?;
        for row in found {
            match others.get(&row.id) {
                _ if locked.contains(&row.id) => {}
                None | Some(CancelAnswer::Cancelled) => page.count(row.key),
                Some(CancelAnswer::Running) => page.running.extend(row.key),
                // It had finished before it could be cancelled, or has changed since so that it does not match.
                Some(CancelAnswer::Finished(_) | CancelAnswer::Unknown) => {}
            }
        }
        Ok(page)
    }

    /// Cancels rows of a tag, and reads them afterwards. A filter of nothing but a tag needs no read before.
    async fn cancel_tagged(
        &self,
        conn: &mut Conn,
        ids: Vec<u64>,
        tag: &str,
    ) -> sqlx::Result<CancelPage> {
        let mark = Owner::random().0.to_vec();
        let cancel = |batch: &[u64]| {
            let batch = padded(batch);
            let cancel = self.queries.with_rows(queries::CANCEL_TAGGED, batch.len());
            let cancel = statement(cancel).bind(mark.clone());
            let cancel = batch.iter().fold(cancel, |cancel, id| cancel.bind(*id));
            cancel.bind(tag.to_owned())
        };
        let locked = self.cancel_with_retries(conn, ids.clone(), cancel).await?;
        let cancelled = about_rows(&self.queries, queries::CANCELLED_AS, &ids).bind(mark.clone());
        let mut page = CancelPage {
            locked: locked.len(),
            ..CancelPage::default()
        };
        let mut done: HashSet<u64> = locked.into_iter().collect();
        for row in conn.fetch(cancelled).await? {
            done.insert(decode::id(&row)?);
            page.count(decode::key(&row)?);
        }
        let others: Vec<u64> = ids.into_iter().filter(|id| !done.contains(id)).collect();
        if !others.is_empty() {
            let others = self
                .cancellable(conn, &others, &ListFilter::tag(tag))
                .await?;
            let leased = others.into_iter().filter(|row| row.leased);
            page.running = leased.filter_map(|row| row.key).collect();
        }
        Ok(page)
    }

    async fn cancellable(
        &self,
        conn: &mut Conn,
        ids: &[u64],
        filter: &ListFilter,
    ) -> sqlx::Result<Vec<Cancellable>> {
        let question = self.restricted(queries::CANCELLABLE, ids, filter);
        let found = conn.fetch(question).await?;
        // A key that is not a task key has neither class nor method.
        let needs_task_key =
            filter.class.is_some() || filter.method.is_some() || !filter.only.is_empty();
        let fits = |row: &Cancellable| row.key.is_some() || !needs_task_key;
        let found = found.iter().map(Cancellable::read);
        let mut found: Vec<Cancellable> = found.collect::<Result<_, _>>()?;
        found.retain(fits);
        Ok(found)
    }

    /// Builds a statement about those of these rows that match the filter.
    fn restricted(&self, template: &str, ids: &[u64], filter: &ListFilter) -> Statement<'static> {
        let conditions = Conditions::of(filter);
        let template = format!("{template}{}", conditions.text());
        conditions.bind(about_rows(&self.queries, &template, ids))
    }

    /// Cancels rows, and tries locked ones again for a while. Returns the ids of those that stayed locked.
    async fn cancel_with_retries(
        &self,
        conn: &mut Conn,
        mut ids: Vec<u64>,
        cancel: impl Fn(&[u64]) -> Statement<'static> + Sync,
    ) -> sqlx::Result<Vec<u64>> {
        let until = Instant::now() + LOCK_PATIENCE;
        loop {
            let done = self
                .locks
                .skip_locked(
                    conn,
                    &self.queries,
                    &ids,
                    |id| *id,
                    |conn, batch| Box::pin(conn.execute(cancel(batch))),
                )
                .await?;
            if done.locked.is_empty() || Instant::now() >= until {
                return Ok(done.locked);
            }
            ids = done.locked;
            tokio::time::sleep(LOCK_PAUSE).await;
        }
    }
}
