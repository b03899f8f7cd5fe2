//! Failures of commands: exit codes, the text of an error, and where its cause is.

use std::process::ExitCode;

use lapsed::engine::EngineError;
use lapsed::ledger::LedgerError;
use lapsed::{ClientError, ConfigError};

use super::log::stderr_line;

/// Exit code: failed at run time.
pub const EXIT_FAILED: u8 = 1;

/// Exit code: wrong usage or invalid configuration.
pub const EXIT_USAGE: u8 = 2;

/// Exit code: `doctor` found an error.
pub const EXIT_SICK: u8 = 3;

/// Whether the error may come from a wrong configuration source: the file is invalid, or its server refuses or does
/// not answer.
pub fn depends_on_configuration(error: &anyhow::Error) -> bool {
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
pub fn is_callers(error: &anyhow::Error) -> bool {
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

/// Reports wrong usage that clap cannot detect.
pub fn usage(message: &str) -> anyhow::Result<ExitCode> {
    stderr_line!("error: {message}");
    Ok(ExitCode::from(EXIT_USAGE))
}

/// Text of an error and its causes, without repetitions.
pub fn chain(error: &anyhow::Error) -> String {
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
