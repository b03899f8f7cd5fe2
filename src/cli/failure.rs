//! Errors of commands: their text, and where their cause is.

use lapsed::engine::EngineError;
use lapsed::ledger::LedgerError;
use lapsed::{ClientError, ConfigError};

/// Whether the error may come from a wrong configuration source: the file is invalid, or its server refuses or does
/// not answer.
pub(super) fn depends_on_configuration(error: &anyhow::Error) -> bool {
    let is_of_server = |error: &LedgerError| {
        matches!(
            error,
            LedgerError::Unavailable { .. } | LedgerError::Refused { .. }
        )
    };
    let of_client = match error.downcast_ref() {
        Some(ClientError::Ledger(error)) => is_of_server(error),
        Some(ClientError::Config(_)) => true,
        _ => false,
    };
    let of_engine = match error.downcast_ref() {
        Some(EngineError::Ledger(error)) => is_of_server(error),
        _ => false,
    };
    let of_ledger = error.downcast_ref().is_some_and(is_of_server);
    of_client || of_engine || of_ledger || error.downcast_ref::<ConfigError>().is_some()
}

/// Whether the error is in the configuration or the command line, whatever the ledger contains.
pub(super) fn is_callers(error: &anyhow::Error) -> bool {
    let of_client = error.downcast_ref::<ClientError>().is_some_and(|error| {
        matches!(
            error,
            ClientError::Key(_)
                | ClientError::Schedule(_)
                | ClientError::Scope(_)
                | ClientError::Trace(_)
                | ClientError::Recurrence(_)
                | ClientError::Invalid(_)
                | ClientError::Config(_)
                | ClientError::Ledger(LedgerError::Invalid(_) | LedgerError::Unfit { .. })
        )
    });
    let of_ledger = matches!(
        error.downcast_ref(),
        Some(LedgerError::Invalid(_) | LedgerError::Unfit { .. })
    );
    of_client || of_ledger || error.downcast_ref::<ConfigError>().is_some()
}

/// Text of an error and its causes, without repetitions.
pub(super) fn chain(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        // A driver's text often is a prefix and then a text that is already shown.
        let news = cause.rsplit(": ").next().unwrap_or_default();
        if !text.contains(news) {
            let colon = if text.is_empty() { "" } else { ": " };
            text = text + colon + &cause;
        }
    }
    text
}
