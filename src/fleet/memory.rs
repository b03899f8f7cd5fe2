//! A roster in this process: for a daemon without Redis, which is alone on it, and for tests with several engines.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use async_trait::async_trait;
use tokio::time::Instant;

use super::{AUDIT_TURN, MemberId, Note, Roster, RosterError};
use crate::task::UnixMs;

/// Notes in memory. Engines that share one see each other.
#[derive(Debug, Default)]
pub struct MemoryRoster(Mutex<Board>);

#[derive(Debug, Default)]
struct Board {
    notes: BTreeMap<MemberId, Note>,
    auditing: Option<(MemberId, Instant)>,
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
        Ok(())
    }

    async fn take_audit(&self, id: MemberId) -> Result<bool, RosterError> {
        let mut board = self.board();
        let others = matches!(board.auditing, Some((holder, since)) if holder != id && since.elapsed() < AUDIT_TURN);
        if !others {
            board.auditing = Some((id, Instant::now()));
        }
        Ok(!others)
    }
}
