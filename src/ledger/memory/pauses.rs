//! Pauses in memory.

use async_trait::async_trait;

use super::MemoryLedger;
use crate::ledger::pauses::{check_reason, cut_by};
use crate::ledger::row::Status;
use crate::ledger::{LedgerError, PauseAnswer, Pauses, ReleaseAnswer};
use crate::task::{Pause, PauseKind, Scope, UnixMs};

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
    async fn pauses(&self) -> Result<Vec<Pause>, LedgerError> {
        Ok(self.table().pauses.clone())
    }

    async fn pause(
        &self,
        scope: &Scope,
        by: &str,
        reason: &str,
    ) -> Result<PauseAnswer, LedgerError> {
        check_reason(reason)?;
        let pause = self.new_pause(PauseKind::Pause, scope, by, reason);
        let mut table = self.table();
        table.check_room_for(&pause)?;
        Ok(table.stand(pause))
    }

    async fn resume(&self, scope: &Scope) -> Result<Option<Pause>, LedgerError> {
        let mut table = self.table();
        let lifted = table.pause_of(PauseKind::Pause, scope);
        table.pauses.retain(|pause| Some(pause) != lifted.as_ref());
        Ok(lifted)
    }

    async fn hold_overdue(&self, by: &str, reason: &str) -> Result<PauseAnswer, LedgerError> {
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
}
