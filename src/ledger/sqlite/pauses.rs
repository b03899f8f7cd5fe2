//! Pauses and holds, in a small table of their own.

use async_trait::async_trait;
use rusqlite::{Result, Row as Found};

use super::SqliteLedger;
use super::rows::{ms, optional, text};
use super::session::Session;
use crate::ledger::pauses::{check_reason, check_room, cut_by, kind_and_scope};
use crate::ledger::{LedgerError, PauseAnswer, Pauses, ReleaseAnswer};
use crate::task::{Pause, PauseKind, Scope, UnixMs};

/// Result of a change that a full table may refuse.
type Change<T> = Result<Result<T, LedgerError>>;

#[async_trait]
impl Pauses for SqliteLedger {
    async fn pauses(&self) -> Result<Vec<Pause>, LedgerError> {
        self.read(all).await
    }

    async fn pause(
        &self,
        scope: &Scope,
        by: &str,
        reason: &str,
    ) -> Result<PauseAnswer, LedgerError> {
        check_reason(reason)?;
        let pause = pause(PauseKind::Pause, scope, by, reason);
        self.write(move |session| insert(session, pause)).await?
    }

    async fn resume(&self, scope: &Scope) -> Result<Option<Pause>, LedgerError> {
        let scope = scope.clone();
        self.write(move |session| {
            let lifted = of(&all(session)?, PauseKind::Pause, &scope);
            let mut delete = session.prepare(&session.queries.delete_pause)?;
            let (class, method) = names(&scope);
            delete.execute((PauseKind::Pause.as_str(), class, method))?;
            Ok(lifted)
        })
        .await
    }

    async fn hold_overdue(&self, by: &str, reason: &str) -> Result<PauseAnswer, LedgerError> {
        check_reason(reason)?;
        let hold = pause(PauseKind::Hold, &Scope::EVERYTHING, by, reason);
        self.write(move |session| insert(session, hold)).await?
    }

    async fn release(&self, scope: &Scope, by: &str) -> Result<ReleaseAnswer, LedgerError> {
        let release = pause(PauseKind::Release, scope, by, "");
        self.write(move |session| {
            let Some(hold) = of(&all(session)?, PauseKind::Hold, &Scope::EVERYTHING) else {
                return Ok(Ok(ReleaseAnswer::NoHold));
            };
            if release.scope.is_everything() {
                session
                    .prepare(&session.queries.delete_holds)?
                    .execute([])?;
                return Ok(Ok(ReleaseAnswer::Released(hold)));
            }
            let inserted = insert(session, release)?;
            Ok(inserted.map(|answer| match answer.already {
                true => ReleaseAnswer::Already(hold),
                false => ReleaseAnswer::Released(hold),
            }))
        })
        .await?
    }

    async fn count_overdue(&self, before: UnixMs, limit: u32) -> Result<u64, LedgerError> {
        self.read(move |session| {
            let mut count = session.prepare(&session.queries.count_due)?;
            let count: i64 = count.query_row((0, false, before.0, limit), |row| row.get(0))?;
            Ok(u64::try_from(count).unwrap_or_default())
        })
        .await
    }
}

/// Reads all pauses, oldest first. Leaves out those of a kind or scope that this version does not know.
pub(super) fn all(session: &Session<'_>) -> Result<Vec<Pause>> {
    let mut statement = session.prepare(&session.queries.pauses)?;
    let mut found = statement.query([])?;
    let mut pauses = Vec::new();
    while let Some(row) = found.next()? {
        pauses.extend(read(row)?);
    }
    Ok(pauses)
}

fn read(found: &Found<'_>) -> Result<Option<Pause>> {
    let column = |at| Ok::<_, rusqlite::Error>(text(found, at)?.unwrap_or_default());
    let known = kind_and_scope(&column(0)?, &column(1)?, &column(2)?);
    let Some((kind, scope)) = known else {
        return Ok(None);
    };
    Ok(Some(Pause {
        kind,
        scope,
        since: ms(found, 3)?,
        due_before: optional(found, 4)?.map(UnixMs),
        by: column(5)?.into_owned(),
        reason: column(6)?.into_owned(),
    }))
}

/// Inserts a pause as of now, unless there is one of its kind and scope.
fn insert(session: &Session<'_>, pause: Pause) -> Change<PauseAnswer> {
    let pauses = all(session)?;
    if let Some(pause) = of(&pauses, pause.kind, &pause.scope) {
        return Ok(Ok(PauseAnswer {
            pause,
            already: true,
        }));
    }
    if let (true, Err(full)) = (pause.kind != PauseKind::Hold, check_room(pauses.len())) {
        return Ok(Err(full));
    }
    let now = session.now;
    let pause = Pause {
        since: now,
        due_before: (pause.kind == PauseKind::Hold).then_some(now),
        ..pause
    };
    let (class, method) = names(&pause.scope);
    session.prepare(&session.queries.insert_pause)?.execute((
        pause.kind.as_str(),
        class,
        method,
        pause.since.0,
        pause.due_before.map(|before| before.0),
        &pause.by,
        &pause.reason,
    ))?;
    Ok(Ok(PauseAnswer {
        pause,
        already: false,
    }))
}

fn pause(kind: PauseKind, scope: &Scope, by: &str, reason: &str) -> Pause {
    Pause {
        kind,
        scope: scope.clone(),
        since: UnixMs(0),
        due_before: None,
        by: cut_by(by),
        reason: reason.to_owned(),
    }
}

fn of(pauses: &[Pause], kind: PauseKind, scope: &Scope) -> Option<Pause> {
    let mut pauses = pauses.iter();
    pauses
        .find(|pause| pause.kind == kind && pause.scope == *scope)
        .cloned()
}

/// Returns class and method of a scope as they are stored. Empty: all of them.
fn names(scope: &Scope) -> (&str, &str) {
    (
        scope.class_name().unwrap_or_default(),
        scope.method_name().unwrap_or_default(),
    )
}
