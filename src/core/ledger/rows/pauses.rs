//! Pauses and holds.

use async_trait::async_trait;

use super::store::{Count, PauseStore, Store};
use super::{Length, Result, RowLedger};
use crate::ledger::pauses::{check_reason, check_room, cut_by, end_of_pause};
use crate::ledger::row::Status;
use crate::ledger::{PauseAnswer, Pauses, ReleaseAnswer};
use crate::task::{Due, Pause, PauseKind, Scope, UnixMs};

#[async_trait]
impl<L: RowLedger> Pauses for L {
    async fn pauses(&self) -> Result<Vec<Pause>> {
        self.read(Length::Short, |store| in_effect(store)).await
    }

    async fn pause(
        &self,
        scope: &Scope,
        end: Option<Due>,
        by: &str,
        reason: &str,
    ) -> Result<PauseAnswer> {
        check_reason(reason)?;
        let pause = pause(PauseKind::Pause, scope, by, reason);
        self.write(Length::Short, move |store| {
            let until = end_of_pause(end, store.now())?;
            set(store, Pause { until, ..pause })
        })
        .await
    }

    async fn resume(&self, scope: &Scope) -> Result<Option<Pause>> {
        let scope = scope.clone();
        self.write(Length::Short, move |store| {
            let lifted = find(&in_effect(store)?, PauseKind::Pause, &scope);
            store.delete_pause(PauseKind::Pause, &scope)?;
            Ok(lifted)
        })
        .await
    }

    async fn hold_overdue(&self, by: &str, reason: &str) -> Result<PauseAnswer> {
        check_reason(reason)?;
        let hold = pause(PauseKind::Hold, &Scope::EVERYTHING, by, reason);
        self.write(Length::Short, move |store| set(store, hold))
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
            Ok(match set(store, release)?.already {
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

/// Returns the pauses whose end has not come.
fn in_effect(store: &mut dyn Store) -> Result<Vec<Pause>> {
    let mut pauses = PauseStore::pauses(store)?;
    let now = store.now();
    pauses.retain(|pause| !pause.is_over(now));
    Ok(pauses)
}

/// Inserts a pause as of now. If there is one of its kind and scope, replaces its end only.
fn set(store: &mut dyn Store, pause: Pause) -> Result<PauseAnswer> {
    let pauses = in_effect(store)?;
    if let Some(found) = find(&pauses, pause.kind, &pause.scope) {
        let end_changed = found.until != pause.until;
        let pause = Pause {
            until: pause.until,
            ..found
        };
        if end_changed {
            store.delete_pause(pause.kind, &pause.scope)?;
            store.insert_pause(&pause)?;
        }
        return Ok(PauseAnswer {
            pause,
            already: true,
            end_changed,
        });
    }
    if pause.kind != PauseKind::Hold {
        check_room(pauses.len())?;
    }
    let now = store.now();
    // Those that have ended are of no more use.
    for over in PauseStore::pauses(store)? {
        if over.is_over(now) {
            store.delete_pause(over.kind, &over.scope)?;
        }
    }
    let pause = Pause {
        since: now,
        due_before: (pause.kind == PauseKind::Hold).then_some(now),
        ..pause
    };
    store.insert_pause(&pause)?;
    Ok(PauseAnswer {
        pause,
        already: false,
        end_changed: false,
    })
}

fn pause(kind: PauseKind, scope: &Scope, by: &str, reason: &str) -> Pause {
    Pause {
        kind,
        scope: scope.clone(),
        since: UnixMs(0),
        due_before: None,
        until: None,
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
