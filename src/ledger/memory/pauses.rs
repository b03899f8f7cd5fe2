//! Pauses in memory.

use async_trait::async_trait;

use super::MemoryLedger;
use super::row::Status;
use super::table::Table;
use crate::ledger::pauses::{check_reason, check_room, cut_by};
use crate::ledger::{DuePage, DueScan, Ledger, LedgerError, PauseAnswer, Pauses, ReleaseAnswer};
use crate::task::{Pause, PauseKind, Paused, Scope, UnixMs};

impl Table {
    fn pause_of(&self, kind: PauseKind, scope: &Scope) -> Option<Pause> {
        let mut pauses = self.pauses.iter();
        pauses
            .find(|pause| pause.kind == kind && pause.scope == *scope)
            .cloned()
    }

    fn check_room_for(&self, pause: &Pause) -> Result<(), LedgerError> {
        match self.pause_of(pause.kind, &pause.scope) {
            Some(_) => Ok(()),
            None => check_room(self.pauses.len()),
        }
    }

    fn stand(&mut self, pause: Pause) -> PauseAnswer {
        match self.pause_of(pause.kind, &pause.scope) {
            Some(pause) => PauseAnswer {
                pause,
                already: true,
            },
            None => {
                self.pauses.push(pause.clone());
                PauseAnswer {
                    pause,
                    already: false,
                }
            }
        }
    }
}

impl MemoryLedger {
    fn new_pause(&self, kind: PauseKind, scope: &Scope, by: &str, reason: &str) -> Pause {
        let now = self.clock.now();
        Pause {
            kind,
            scope: scope.clone(),
            since: now,
            due_before: (kind == PauseKind::Hold).then_some(now),
            by: cut_by(by),
            reason: reason.to_owned(),
        }
    }
}

#[async_trait]
impl Pauses for MemoryLedger {
    async fn all(&self) -> Result<Vec<Pause>, LedgerError> {
        Ok(self.table().pauses.clone())
    }

    async fn set(&self, scope: &Scope, by: &str, reason: &str) -> Result<PauseAnswer, LedgerError> {
        check_reason(reason)?;
        let pause = self.new_pause(PauseKind::Pause, scope, by, reason);
        let mut table = self.table();
        table.check_room_for(&pause)?;
        Ok(table.stand(pause))
    }

    async fn lift(&self, scope: &Scope) -> Result<Option<Pause>, LedgerError> {
        let mut table = self.table();
        let lifted = table.pause_of(PauseKind::Pause, scope);
        table.pauses.retain(|pause| Some(pause) != lifted.as_ref());
        Ok(lifted)
    }

    async fn hold(&self, by: &str, reason: &str) -> Result<PauseAnswer, LedgerError> {
        check_reason(reason)?;
        let hold = self.new_pause(PauseKind::Hold, &Scope::EVERYTHING, by, reason);
        Ok(self.table().stand(hold))
    }

    async fn release(&self, scope: &Scope, by: &str) -> Result<ReleaseAnswer, LedgerError> {
        let release = self.new_pause(PauseKind::Release, scope, by, "");
        let mut table = self.table();
        let Some(hold) = table.pause_of(PauseKind::Hold, &Scope::EVERYTHING) else {
            return Ok(ReleaseAnswer::NoHold);
        };
        if scope.is_everything() {
            table.pauses.retain(|pause| pause.kind == PauseKind::Pause);
            return Ok(ReleaseAnswer::Released(hold));
        }
        table.check_room_for(&release)?;
        Ok(match table.stand(release).already {
            true => ReleaseAnswer::Already(hold),
            false => ReleaseAnswer::Released(hold),
        })
    }

    async fn count_overdue(&self, before: UnixMs, limit: u32) -> Result<u64, LedgerError> {
        let table = self.table();
        let overdue = table.rows.values().filter(|row| {
            row.status == Status::Unprocessed && !row.deleted && row.due_at() < before
        });
        Ok(overdue.take(limit as usize).count() as u64)
    }

    async fn scan_unpaused(&self, scan: DueScan, paused: &Paused) -> Result<DuePage, LedgerError> {
        let mut page = self.scan(scan).await?;
        page.rows
            .retain(|row| paused.hinders(&row.key, row.arming.due).is_none());
        Ok(page)
    }
}
