//! What is paused and held, in a small table beside the tasks', and the scan that goes around it.

use async_trait::async_trait;

use super::connection::{Conn, Statement, error, is_duplicate, statement};
use super::queries::{self, padded};
use super::scan::{STRETCH, THE_END, ms};
use super::{MysqlLedger, decode};
use crate::ledger::pauses::{check_reason, check_room, cut_by};
use crate::ledger::{DuePage, DueScan, LedgerError, PauseAnswer, Pauses, ReleaseAnswer, Window};
use crate::task::{Pause, PauseKind, Paused, Scope, UnixMs};

/// How often a pause may vanish between being found to stand and being read.
const READ_BACKS: usize = 5;

#[async_trait]
impl Pauses for MysqlLedger {
    async fn all(&self) -> Result<Vec<Pause>, LedgerError> {
        let mut conn = self.pools.acquire().await?;
        let question = statement(self.queries.plain(queries::PAUSES));
        let rows = conn.fetch(question).await.map_err(error)?;
        let pauses = rows.iter().filter_map(|row| decode::pause(row).transpose());
        pauses.collect::<Result<_, _>>().map_err(error)
    }

    async fn set(&self, scope: &Scope, by: &str, reason: &str) -> Result<PauseAnswer, LedgerError> {
        check_reason(reason)?;
        self.check_room_for(PauseKind::Pause, scope).await?;
        let (class, method) = columns(scope);
        let insert = || {
            statement(self.queries.plain(queries::SET_PAUSE))
                .bind(class.clone())
                .bind(method.clone())
                .bind(cut_by(by))
                .bind(reason.to_owned())
        };
        self.stand(PauseKind::Pause, scope, insert).await
    }

    async fn lift(&self, scope: &Scope) -> Result<Option<Pause>, LedgerError> {
        let mut conn = self.pools.acquire().await?;
        let found = self.pause_of(&mut conn, PauseKind::Pause, scope).await;
        let (class, method) = columns(scope);
        let delete = statement(self.queries.plain(queries::LIFT_PAUSE))
            .bind(class)
            .bind(method);
        let lifted = conn.execute(delete).await.map_err(error)?;
        Ok(found.map_err(error)?.filter(|_| lifted > 0))
    }

    async fn hold(&self, by: &str, reason: &str) -> Result<PauseAnswer, LedgerError> {
        check_reason(reason)?;
        let insert = || {
            statement(self.queries.plain(queries::SET_HOLD))
                .bind(cut_by(by))
                .bind(reason.to_owned())
        };
        self.stand(PauseKind::Hold, &Scope::EVERYTHING, insert)
            .await
    }

    async fn release(&self, scope: &Scope, by: &str) -> Result<ReleaseAnswer, LedgerError> {
        if !scope.is_everything() {
            self.check_room_for(PauseKind::Release, scope).await?;
        }
        let mut conn = self.pools.acquire().await?;
        let hold = self.pause_of(&mut conn, PauseKind::Hold, &Scope::EVERYTHING);
        let Some(hold) = hold.await.map_err(error)? else {
            return Ok(ReleaseAnswer::NoHold);
        };
        let release = if scope.is_everything() {
            statement(self.queries.plain(queries::RELEASE_ALL))
        } else {
            let (class, method) = columns(scope);
            statement(self.queries.plain(queries::RELEASE_SOME))
                .bind(class)
                .bind(method)
                .bind(cut_by(by))
        };
        match conn.execute(release).await {
            Ok(0) => Ok(ReleaseAnswer::NoHold),
            Ok(_) => Ok(ReleaseAnswer::Released(hold)),
            Err(duplicate) if is_duplicate(&duplicate) => Ok(ReleaseAnswer::Already(hold)),
            Err(failure) => Err(error(failure)),
        }
    }

    async fn count_overdue(&self, before: UnixMs, limit: u32) -> Result<u64, LedgerError> {
        let mut conn = self.pools.acquire().await?;
        let question = statement(self.queries.plain(queries::COUNT_OVERDUE));
        let rows = conn.fetch(question.bind(before.0).bind(limit)).await;
        let count = rows
            .and_then(|rows| decode::first_i64(&rows))
            .map_err(error)?;
        Ok(u64::try_from(count).unwrap_or(0))
    }

    async fn scan_unpaused(&self, scan: DueScan, paused: &Paused) -> Result<DuePage, LedgerError> {
        let (by, stretch, rows, from) = match scan.window {
            _ if paused.is_everything() => return Ok(DuePage::default()),
            Window::OverdueOldest(by) => (
                by,
                queries::STRETCH_OLDEST,
                queries::UNPAUSED_OLDEST,
                Default::default(),
            ),
            Window::OverdueNewest(by) => (
                by,
                queries::STRETCH_NEWEST,
                queries::UNPAUSED_NEWEST,
                THE_END,
            ),
            Window::Ahead(_) | Window::Deleted { .. } => {
                let mut page = self.scan_page(scan).await?;
                page.rows
                    .retain(|row| paused.hinders(&row.key, row.arming.due).is_none());
                return Ok(page);
            }
        };
        let (after_due, after_row) = scan.after.unwrap_or(from);
        let mut conn = self.pools.acquire().await?;
        let question = statement(self.queries.plain(stretch)).bind(ms(by));
        let question = question.bind(after_due.0).bind(after_due.0).bind(after_row);
        let end = conn
            .fetch(question.bind(STRETCH - 1))
            .await
            .map_err(error)?;
        let end = decode::places(&end).map_err(error)?.first().copied();
        // The other end of all rows, seen from where this scan begins.
        let far = match scan.window {
            Window::OverdueNewest(_) => Default::default(),
            _ => THE_END,
        };
        let (end_due, end_row) = end.unwrap_or(far);

        let (names, released) = (listed(paused.names()), listed(paused.released()));
        let question = self.queries.unpaused(rows, names.len(), released.len());
        let question = statement(question).bind(ms(by));
        let question = question.bind(after_due.0).bind(after_due.0).bind(after_row);
        let question = question.bind(end_due.0).bind(end_due.0).bind(end_row);
        let question = bind_twice(question, names);
        let question = question.bind(paused.held_before().unwrap_or_default().0);
        let question = bind_twice(question, released);
        let found = conn.fetch(question.bind(scan.limit)).await.map_err(error)?;
        let page = decode::due_page(&found, scan.limit).map_err(error)?;
        Ok(DuePage {
            next: page.next.or(end),
            ..page
        })
    }
}

impl MysqlLedger {
    /// Refuses one more than there may be, unless it stands already.
    async fn check_room_for(&self, kind: PauseKind, scope: &Scope) -> Result<(), LedgerError> {
        let all = self.all().await?;
        let stands = |pause: &Pause| pause.kind == kind && pause.scope == *scope;
        match all.iter().any(stands) {
            true => Ok(()),
            false => check_room(all.len()),
        }
    }

    /// Inserts, unless there is one; answers the one that stands.
    async fn stand(
        &self,
        kind: PauseKind,
        scope: &Scope,
        insert: impl Fn() -> Statement<'static> + Send + Sync,
    ) -> Result<PauseAnswer, LedgerError> {
        let mut conn = self.pools.acquire().await?;
        for _ in 0..READ_BACKS {
            let already = match conn.execute(insert()).await {
                Ok(_) => false,
                Err(duplicate) if is_duplicate(&duplicate) => true,
                Err(failure) => return Err(error(failure)),
            };
            let found = self.pause_of(&mut conn, kind, scope).await;
            if let Some(pause) = found.map_err(error)? {
                return Ok(PauseAnswer { pause, already });
            }
        }
        Err(LedgerError::Locked {
            message: format!("others pause and resume {scope} at the same time"),
            source: None,
        })
    }

    async fn pause_of(
        &self,
        conn: &mut Conn,
        kind: PauseKind,
        scope: &Scope,
    ) -> sqlx::Result<Option<Pause>> {
        let (class, method) = columns(scope);
        let question = statement(self.queries.plain(queries::PAUSE))
            .bind(kind.as_str())
            .bind(class)
            .bind(method);
        let rows = conn.fetch(question).await?;
        rows.first().map_or(Ok(None), decode::pause)
    }
}

/// What stands for a scope: an empty text is "every".
fn columns(scope: &Scope) -> (String, String) {
    let text = |name: Option<&str>| name.unwrap_or_default().to_owned();
    (text(scope.class_name()), text(scope.method_name()))
}

/// Names for a list in a statement, which must not be empty: no key has an empty class.
fn listed<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let names: Vec<&str> = names.collect();
    match names.is_empty() {
        true => vec![""],
        false => padded(&names),
    }
}

/// The list stands in the statement twice.
fn bind_twice(question: Statement<'static>, names: Vec<&str>) -> Statement<'static> {
    let twice = names.iter().chain(&names);
    twice.fold(question, |question, name| question.bind((*name).to_owned()))
}
