//! Pauses and holds.

use async_trait::async_trait;

use super::store::{Count, PauseStore, Store};
use super::{Length, Result, RowLedger};
use crate::ledger::pauses::{check_reason, check_room, cut_by};
use crate::ledger::row::Status;
use crate::ledger::{PauseAnswer, Pauses, ReleaseAnswer};
use crate::task::{Pause, PauseKind, Scope, UnixMs};

#[async_trait]
impl<L: RowLedger> Pauses for L {
    async fn pauses(&self) -> Result<Vec<Pause>> {
        self.read(Length::Short, |store| store.pauses()).await
    }

    async fn pause(&self, scope: &Scope, by: &str, reason: &str) -> Result<PauseAnswer> {
        check_reason(reason)?;
        let pause = pause(PauseKind::Pause, scope, by, reason);
        self.write(Length::Short, move |store| insert(store, pause))
            .await
    }

    async fn resume(&self, scope: &Scope) -> Result<Option<Pause>> {
        let scope = scope.clone();
        self.write(Length::Short, move |store| {
            let lifted = find(&store.pauses()?, PauseKind::Pause, &scope);
            store.delete_pause(PauseKind::Pause, &scope)?;
            Ok(lifted)
        })
        .await
    }

    async fn hold_overdue(&self, by: &str, reason: &str) -> Result<PauseAnswer> {
        check_reason(reason)?;
        let hold = pause(PauseKind::Hold, &Scope::EVERYTHING, by, reason);
        self.write(Length::Short, move |store| insert(store, hold))
            .await
    }

    async fn release(&self, scope: &Scope, by: &str) -> Result<ReleaseAnswer> {
        let release = pause(PauseKind::Release, scope, by, "");
        self.write(Length::Short, move |store| {
            let Some(hold) = find(&store.pauses()?, PauseKind::Hold, &Scope::EVERYTHING) else {
                return Ok(ReleaseAnswer::NoHold);
            };
            if release.scope.is_everything() {
                store.delete_holds()?;
                return Ok(ReleaseAnswer::Released(hold));
            }
            Ok(match insert(store, release)?.already {
                true => ReleaseAnswer::Already(hold),
                false => ReleaseAnswer::Released(hold),
            })
        })
        .await
    }

    async fn count_overdue(&self, before: UnixMs, limit: u32) -> Result<u64> {
        self.read(Length::Short, move |store| {
            store.count(Count {
                status: Status::Unprocessed.number(),
                deleted: Some(false),
                before,
                limit: u64::from(limit),
            })
        })
        .await
    }
}

/// Inserts a pause as of now, unless there is one of its kind and scope.
fn insert(store: &mut dyn Store, pause: Pause) -> Result<PauseAnswer> {
    let pauses = PauseStore::pauses(store)?;
    if let Some(pause) = find(&pauses, pause.kind, &pause.scope) {
        return Ok(PauseAnswer {
            pause,
            already: true,
        });
    }
    if pause.kind != PauseKind::Hold {
        check_room(pauses.len())?;
    }
    let now = store.now();
    let pause = Pause {
        since: now,
        due_before: (pause.kind == PauseKind::Hold).then_some(now),
        ..pause
    };
    store.insert_pause(&pause)?;
    Ok(PauseAnswer {
        pause,
        already: false,
    })
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

fn find(pauses: &[Pause], kind: PauseKind, scope: &Scope) -> Option<Pause> {
    let mut pauses = pauses.iter();
    pauses
        .find(|pause| pause.kind == kind && pause.scope == *scope)
        .cloned()
}
