//! Errors of the driver as errors of the ledger, with what to do about them.

use super::error_numbers::{is_about_data, is_locked, is_transient, number};
use super::pool::ACQUIRE_TIMEOUT;
use super::privileges;
use lapsed_core::ledger::LedgerError;

/// True if the driver would have to send a password of MySQL's `caching_sha2_password` without TLS. The driver's feature
/// that encrypts it is left out, since every MySQL comes with TLS enabled.
fn wants_tls(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Configuration(error) if error.to_string().starts_with("RSA auth backend disabled"))
}

/// Converts an error of the driver, and adds what to do about it.
pub(super) fn error(error: sqlx::Error) -> LedgerError {
    let hint = match number(&error) {
        Some(1045 | 1698) => "; check user and password in `ledger.url`",
        Some(1049) => "; create the database or correct `ledger.url`",
        Some(1146) => "; run `lapsed migrate`",
        Some(1054) => "; run `lapsed migrate`",
        Some(1290 | 1836) => "; the server is read-only",
        Some(1267 | 1270 | 1271 | 1366 | 3854 | 3988) => {
            "; for keys that are not ASCII, run `lapsed migrate --utf8mb4`"
        }
        Some(1461) => "; raise the server's `max_prepared_stmt_count`",
        _ => "",
    };
    let is_missing_privilege = matches!(number(&error), Some(1044 | 1142 | 1143));
    let message = match &error {
        sqlx::Error::Database(error) if is_missing_privilege => {
            format!("{}{}", error.message(), privileges::remedy(error.message()))
        }
        sqlx::Error::Database(error) => format!("{}{hint}", error.message()),
        sqlx::Error::PoolTimedOut => format!(
            "no connection within {} s; is the server up, and `ledger.max_connections` large enough?",
            ACQUIRE_TIMEOUT.as_secs()
        ),
        error if wants_tls(error) => "the server takes this user's password over TLS alone; \
             is `ssl-mode=disabled` in `ledger.url`, or TLS switched off there?"
            .to_owned(),
        sqlx::Error::Io(error) => format!("{error}; is the server up, and `ledger.url` right?"),
        sqlx::Error::RowNotFound => "a row was deleted right after it was written".to_owned(),
        other => other.to_string(),
    };
    let (locked, transient) = (is_locked(&error), is_transient(&error));
    let about_data = is_about_data(&error);
    // The driver's own text names features of the driver.
    let source = (!wants_tls(&error)).then(|| std::sync::Arc::new(error) as _);
    match () {
        () if locked => LedgerError::Locked { message, source },
        () if transient => LedgerError::Unavailable { message, source },
        () if about_data => LedgerError::Unfit { message, source },
        () => LedgerError::Refused { message, source },
    }
}
