//! The jobs of the thread that writes.

use tokio::sync::oneshot;

use super::store::SqliteStore;
use lapsed_core::ledger::LedgerError;

/// A verb, and the caller that waits for its result.
pub(super) trait Job: Send {
    /// Runs the verb. Returns its error, in which case its changes are to be undone.
    fn run(&mut self, store: &mut SqliteStore<'_>) -> Result<(), LedgerError>;

    /// Sends the result, once the transaction has ended like this.
    fn answer(self: Box<Self>, transaction: Result<(), LedgerError>);
}

pub(super) struct Write<V, T> {
    /// `None` once it has run.
    verb: Option<V>,
    done: Option<Result<T, LedgerError>>,
    caller: oneshot::Sender<Result<T, LedgerError>>,
}

impl<V, T> Write<V, T> {
    pub fn new(verb: V, caller: oneshot::Sender<Result<T, LedgerError>>) -> Self {
        Self {
            verb: Some(verb),
            done: None,
            caller,
        }
    }
}

impl<V, T> Job for Write<V, T>
where
    V: FnOnce(&mut SqliteStore<'_>) -> Result<T, LedgerError> + Send,
    T: Send,
{
    fn run(&mut self, store: &mut SqliteStore<'_>) -> Result<(), LedgerError> {
        let Some(verb) = self.verb.take() else {
            return Ok(());
        };
        let done = verb(store);
        let failed = done.as_ref().err().cloned();
        self.done = Some(done);
        failed.map_or(Ok(()), Err)
    }

    fn answer(self: Box<Self>, transaction: Result<(), LedgerError>) {
        let answer = match (transaction, self.done) {
            (_, Some(Err(error))) | (Err(error), _) => Err(error),
            (Ok(()), Some(Ok(done))) => Ok(done),
            (Ok(()), None) => Err(ended()),
        };
        // The caller may have gone.
        let _ = self.caller.send(answer);
    }
}

/// The error for a thread that has panicked.
pub(super) fn ended() -> LedgerError {
    LedgerError::Unavailable {
        message: "the thread that writes has ended".to_owned(),
        source: None,
    }
}
