//! A roster in this process: for a daemon without Redis, which is alone on it, and for tests with several engines.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use async_trait::async_trait;
use tokio::time::Instant;

use super::{AUDIT_TURN, Audit, MemberId, Note, Roster, RosterError, Turn};
use crate::task::UnixMs;

/// Notes in memory. Engines that share one see each other.
#[derive(Debug, Default)]
pub struct MemoryRoster(Mutex<Board>);

#[derive(Debug, Default)]
struct Board {
    notes: BTreeMap<MemberId, Note>,
    audit: Option<Taken>,
}

#[derive(Debug, Clone, Copy)]
struct Taken {
    by: MemberId,
    at: Instant,
    /// The audit, if it is finished.
    over: Option<Audit>,
}

impl MemoryRoster {
    fn board(&self) -> MutexGuard<'_, Board> {
        self.0.lock().expect("nothing panics while holding it")
    }
}

#[async_trait]
impl Roster for MemoryRoster {
    async fn exchange(&self, own: &Note, _: UnixMs) -> Result<Vec<Note>, RosterError> {
        let mut board = self.board();
        board.notes.insert(own.id, own.clone());
        Ok(board.notes.values().cloned().collect())
    }

    async fn leave(&self, id: MemberId) -> Result<(), RosterError> {
        self.board().notes.remove(&id);
        self.release_audit(id).await
    }

    async fn release_audit(&self, gone: MemberId) -> Result<(), RosterError> {
        let mut board = self.board();
        board.audit = board
            .audit
            .filter(|taken| taken.by != gone || taken.over.is_some());
        Ok(())
    }

    async fn take_audit(&self, id: MemberId, wanted: Audit) -> Result<Turn, RosterError> {
        let mut board = self.board();
        match board.audit {
            Some(Taken { by, at, over }) if at.elapsed() < AUDIT_TURN => match over {
                Some(audit) if audit.serves(wanted) => return Ok(Turn::Over),
                None if by != id => return Ok(Turn::Others(Some(by))),
                _ => {}
            },
            _ => {}
        }
        board.audit = Some(Taken {
            by: id,
            at: Instant::now(),
            over: None,
        });
        Ok(Turn::Ours)
    }

    async fn audited(&self, id: MemberId, audit: Audit) -> Result<(), RosterError> {
        self.board().audit = Some(Taken {
            by: id,
            at: Instant::now(),
            over: Some(audit),
        });
        Ok(())
    }
}
