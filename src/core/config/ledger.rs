//! `[ledger]`: the URL and its limits.

use std::path::PathBuf;
use std::time::Duration;

use percent_encoding::percent_decode_str;

use super::reader::{Problems, Reader};
use super::rules::{at_least, checked, section, within};
use super::server_url::without_stray_at;
use super::{ConfigError, Secret, TimerKind};
use crate::task::TableName;

/// Schemes of ledgers on a server.
const SERVER_SCHEMES: [&str; 2] = ["mysql://", "mariadb://"];

const TIMEOUT_MIN: Duration = Duration::from_millis(100);

/// Scheme of a ledger in a file.
const FILE_SCHEME: &str = "sqlite://";

section! {
    /// `[ledger]`
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct LedgerConfig {
        /// URL with credentials; the password is redacted when shown.
        pub url: Secret = ledger_url,
        /// The table's name.
        pub table: String = checked(|table: &String| TableName::new(table).is_ok(), "1 to 55 letters, digits or `_`"),
        /// Maximum number of connections.
        pub max_connections: u32 = within(2..=1000),
        /// Time limit for one statement.
        pub statement_timeout: Duration = at_least(TIMEOUT_MIN),
        /// Time limit for statements of `list`, `stats`, `redrive`, `discard`, `prune` and `sweep`.
        pub command_timeout: Duration = at_least(TIMEOUT_MIN),
    }
}

impl LedgerConfig {
    /// Returns the file of a ledger in SQLite, of a URL such as `sqlite:///var/lib/lapsed/lapsed.db`. `None` if the ledger is
    /// on a server.
    ///
    /// Without the third slash, the path is relative to the working directory.
    pub fn sqlite_file(&self) -> Option<PathBuf> {
        file_of(self.url.expose())
    }

    /// Returns the database and the table: the same for all daemons, which may know the server by different addresses.
    pub fn name(&self) -> String {
        let url = self.url.expose().split('?').next().unwrap_or_default();
        let database = url.rsplit('/').next().unwrap_or_default();
        format!("{database}.{}", self.table)
    }

    /// Refuses a timer in Redis for a ledger in a file.
    ///
    /// # Errors
    /// [`ConfigError`] says which timer fits.
    pub fn check_timer(&self, timer: TimerKind) -> Result<(), ConfigError> {
        match self.sqlite_file() {
            Some(_) if timer.uses_redis() => Err(ConfigError::one(
                "timer",
                format!(
                    "`{}` needs a ledger in MySQL or MariaDB, expected \"ledger_poll\" with a sqlite:// ledger",
                    timer.as_str()
                ),
            )),
            _ => Ok(()),
        }
    }
}

/// True if the URL is of a ledger in a file.
pub(super) fn is_file(url: &str) -> bool {
    url.starts_with(FILE_SCHEME)
}

fn file_of(url: &str) -> Option<PathBuf> {
    let path = url.strip_prefix(FILE_SCHEME)?;
    let path = percent_decode_str(path).decode_utf8_lossy();
    Some(PathBuf::from(path.into_owned()))
}

fn ledger_url(section: &mut Reader, key: &str, p: &mut Problems) -> Option<Secret> {
    let is_ledger =
        |url: &String| is_file(url) || SERVER_SCHEMES.iter().any(|s| url.starts_with(s));
    let expected = "mysql://user:password@host:port/database or sqlite:///path/to/file.db";
    let url = match section.checked(key, p, is_ledger, expected) {
        Some(url) if is_file(&url) => file_url(section, url, p),
        url => without_stray_at(section, url, p),
    };
    url.map(Secret::from)
}

fn file_url(section: &Reader, url: String, p: &mut Problems) -> Option<String> {
    let problem = match () {
        () if url.contains(['?', '#']) => {
            "has options, expected only a path: in a path write `?` as %3F and `#` as %23"
        }
        () if file_of(&url).is_none_or(|path| path.file_name().is_none()) => {
            "names no file, expected a path such as sqlite:///var/lib/lapsed/lapsed.db"
        }
        () => return Some(url),
    };
    p.add(&section.at("url"), problem);
    None
}
