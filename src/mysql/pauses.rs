//! Pauses and holds, in a small table beside the tasks.

use async_trait::async_trait;

use super::connection::{Conn, Statement, covered, statement};
use super::error::error;
use super::error_numbers::is_duplicate;
use super::{MysqlLedger, decode, queries};
use lapsed_core::ledger::pauses::{check_reason, check_room, cut_by, end_of_pause};
use lapsed_core::ledger::{Ledger as _, LedgerError, PauseAnswer, Pauses, ReleaseAnswer};
use lapsed_core::task::{Due, Pause, PauseKind, Scope, UnixMs};

/// Number of attempts to read a pause that others remove at the same time.
const READ_BACKS: usize = 5;

#[async_trait]
impl Pauses for MysqlLedger {
    async fn pauses(&self) -> Result<Vec<Pause>, LedgerError> {
        let mut conn = self.pools.acquire().await?;
        let question = statement(self.queries.plain(queries::PAUSES));
        let rows = conn.fetch(question).await.map_err(error)?;
        let pauses = rows.iter().filter_map(|row| decode::pause(row).transpose());
        pauses.collect::<Result<_, _>>().map_err(error)
    }

    async fn pause(
        &self,
        scope: &Scope,
        end: Option<Due>,
        by: &str,
        reason: &str,
    ) -> Result<PauseAnswer, LedgerError> {
        check_reason(reason)?;
        let until = match end {
            Some(_) => end_of_pause(end, self.sync_clock().await?)?,
            None => None,
        };
        let mut conn = self.pools.acquire().await?;
        let over = statement(self.queries.plain(queries::DELETE_OVER));
        conn.execute(over).await.map_err(error)?;
        drop(conn);
        self.check_room_for(PauseKind::Pause, scope).await?;
        let (class, method) = columns(scope);
        let insert = || {
            statement(self.queries.plain(queries::SET_PAUSE))
                .bind(class.clone())
                .bind(method.clone())
                .bind(until.map(|until| until.0))
                .bind(cut_by(by))
                .bind(reason.to_owned())
        };
        let answer = self.write(PauseKind::Pause, scope, insert).await?;
        if answer.pause.until == until {
            return Ok(answer);
        }
        let replace = statement(self.queries.plain(queries::SET_UNTIL))
            .bind(until.map(|until| until.0))
            .bind(class.clone())
            .bind(method.clone());
        let mut conn = self.pools.acquire().await?;
        match conn.execute(replace).await.map_err(error)? {
            0 => Err(changed_meanwhile(scope)),
            _ => Ok(PauseAnswer {
                pause: Pause {
                    until,
                    ..answer.pause
                },
                already: true,
                end_changed: true,
            }),
        }
    }

    async fn resume(&self, scope: &Scope) -> Result<Option<Pause>, LedgerError> {
        let is_same = |pause: &Pause| pause.kind == PauseKind::Pause && pause.scope == *scope;
        let found = self.pauses().await?.into_iter().find(is_same);
        let mut conn = self.pools.acquire().await?;
        let (class, method) = columns(scope);
        let delete = statement(self.queries.plain(queries::LIFT_PAUSE))
            .bind(class)
            .bind(method);
        let lifted = conn.execute(delete).await.map_err(error)?;
        Ok(found.filter(|_| lifted > 0))
    }

    async fn hold_overdue(&self, by: &str, reason: &str) -> Result<PauseAnswer, LedgerError> {
        check_reason(reason)?;
        let insert = || {
            statement(self.queries.plain(queries::SET_HOLD))
                .bind(cut_by(by))
                .bind(reason.to_owned())
        };
        self.write(PauseKind::Hold, &Scope::EVERYTHING, insert)
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
        let question = covered(self.queries.plain(queries::COUNT_OVERDUE));
        let rows = conn.fetch(question.bind(before.0).bind(limit)).await;
        let count = rows
            .and_then(|rows| decode::first_i64(&rows))
            .map_err(error)?;
        Ok(u64::try_from(count).unwrap_or(0))
    }
}

impl MysqlLedger {
    /// Refuses a pause if there are too many, unless this one is in effect already.
    async fn check_room_for(&self, kind: PauseKind, scope: &Scope) -> Result<(), LedgerError> {
        let all = self.pauses().await?;
        let is_same = |pause: &Pause| pause.kind == kind && pause.scope == *scope;
        match all.iter().any(is_same) {
            true => Ok(()),
            false => check_room(all.len()),
        }
    }

    /// Inserts a pause, unless there is one. Returns the one in effect.
    async fn write(
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
                return Ok(PauseAnswer {
                    pause,
                    already,
                    end_changed: false,
                });
            }
        }
        Err(changed_meanwhile(scope))
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

fn changed_meanwhile(scope: &Scope) -> LedgerError {
    LedgerError::Locked {
        message: format!("others pause and resume {scope} at the same time"),
        source: None,
    }
}

/// Returns the columns of a scope; an empty text stands for every class or method.
fn columns(scope: &Scope) -> (String, String) {
    let text = |name: Option<&str>| name.unwrap_or_default().to_owned();
    (text(scope.class_name()), text(scope.method_name()))
}
