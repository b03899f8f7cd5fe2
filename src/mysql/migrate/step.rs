//! The steps of a migration, and the methods by which a server runs them.

use std::fmt;

use super::definition::{self, IX_METHOD, IX_RECURRING, Index, METHOD_CRC, RECURRING};
use super::identity;
use super::month::{self, Month};
use super::side_tables::{ARCHIVE, DOCUMENTS, PAUSES, RATES};
use lapsed_core::task::{TableName, UnixMs};

/// One change to the database, complete in itself: a migration may be interrupted between any two.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// Creates the table.
    CreateTable,
    /// Changes the column of keys, which compares without case or is too short: two keys would be taken for one.
    ChangeKey {
        /// The current type, as in `varchar(255) utf8_general_ci`.
        from: String,
        /// The character set, which is kept.
        charset: String,
        /// The length, kept or extended.
        length: u64,
        /// The comment, which is kept.
        comment: String,
    },
    /// Converts the column of keys to `utf8mb4`, since it cannot hold every character.
    ConvertKey {
        /// The current type, as in `varchar(255) utf8_bin`.
        from: String,
        /// The length, kept or extended.
        length: u64,
        /// The comment, which is kept.
        comment: String,
    },
    /// Adds the missing columns, by name.
    AddColumns(Vec<&'static str>),
    /// Adds a generated column. Servers refuse to add generated and stored columns in one statement.
    AddGenerated(&'static str),
    /// Adds a default, so that programs may leave the column out of an INSERT.
    DefaultZero(&'static str),
    /// Creates the table for surplus rows of duplicated keys.
    CreateDuplicates,
    /// Moves surplus rows to that table.
    MoveDuplicates {
        /// Number of surplus rows.
        rows: u64,
    },
    /// Adds a missing index.
    AddIndex(&'static Index),
    /// Replaces an index of this name, which an earlier version created.
    ReplaceIndex(&'static Index),
    /// Sets the comment of the table to this text, which contains a new identity.
    Identify(String),
    /// Creates the table of pauses.
    CreatePauses,
    /// Adds this column to the table of pauses, which an earlier version created.
    AddToPauses(&'static str),
    /// Creates the table of rates, for daemons without Redis.
    CreateRates,
    /// Creates the table of documents.
    CreateDocuments,
    /// Creates the archive of finished tasks, with partitions from this time on.
    CreateArchive(UnixMs),
    /// Adds this column to the archive, which an earlier version created.
    AddToArchive(&'static str),
    /// Creates partitions of the archive for these months.
    AddPartitions {
        /// The months, in order. All are later than those that have a partition.
        months: Vec<Month>,
        /// The partition for all later times, which is divided.
        later: Option<String>,
    },
    /// Drops these partitions of the archive.
    DropPartitions(Vec<String>),
}

/// How the server changes a table, and what other sessions can do meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Method {
    /// Not an ALTER TABLE.
    Plain,
    /// Changes only metadata.
    Instant,
    /// Reads and writes continue.
    InPlace,
    /// Copies the table; reads continue, writes wait.
    Copy,
    /// The server accepted none of the above by name, and chooses.
    ServersChoice,
}

impl Step {
    /// Returns the statement, without the clause that names the method.
    #[must_use]
    pub fn statement(&self, table: &TableName) -> String {
        let alter = format!("ALTER TABLE `{table}` ");
        match self {
            Self::CreateTable => {
                format!(
                    "{} COMMENT='{}'",
                    definition::create_statement(table),
                    identity::random()
                )
            }
            Self::Identify(comment) => alter + &format!("COMMENT='{}'", quotable(comment)),
            Self::ChangeKey {
                charset,
                length,
                comment,
                ..
            } => alter + &modify_key(*length, charset, comment),
            // The index on it is wider than older row formats allow.
            Self::ConvertKey {
                length, comment, ..
            } => alter + &modify_key(*length, "utf8mb4", comment) + ", ROW_FORMAT=DYNAMIC",
            Self::AddColumns(names) => {
                let clauses: Vec<String> = names.iter().map(|name| add_column(name)).collect();
                alter + &clauses.join(", ")
            }
            Self::AddGenerated(name) => alter + &add_column(name),
            Self::DefaultZero(name) => alter + &format!("ALTER COLUMN `{name}` SET DEFAULT 0"),
            Self::CreateDuplicates => {
                format!("CREATE TABLE `{}` LIKE `{table}`", table.duplicates())
            }
            Self::MoveDuplicates { .. } => format!(
                "INSERT INTO `{}` SELECT ... FROM `{table}`; DELETE FROM `{table}` ... (batches, a transaction each)",
                table.duplicates()
            ),
            Self::AddIndex(index) => alter + &format!("ADD {}", index.definition()),
            Self::ReplaceIndex(index) => {
                alter + &format!("DROP KEY `{}`, ADD {}", index.name, index.definition())
            }
            Self::CreatePauses => PAUSES.create_statement(table),
            Self::AddToPauses(column) => PAUSES.add_statement(table, column),
            Self::CreateRates => RATES.create_statement(table),
            Self::CreateDocuments => DOCUMENTS.create_statement(table),
            Self::CreateArchive(now) => ARCHIVE.create_statement(table) + &month::clause(*now),
            Self::AddToArchive(column) => ARCHIVE.add_statement(table, column),
            Self::AddPartitions { months, later } => {
                let archive = table.archive();
                let definitions = month::definitions(months);
                match later {
                    Some(later) => format!(
                        "ALTER TABLE `{archive}` REORGANIZE PARTITION `{later}` INTO ({definitions})"
                    ),
                    None => format!("ALTER TABLE `{archive}` ADD PARTITION ({definitions})"),
                }
            }
            Self::DropPartitions(names) => {
                let archive = table.archive();
                let names = names.join("`, `");
                format!("ALTER TABLE `{archive}` DROP PARTITION `{names}`")
            }
        }
    }

    /// Returns the methods to request, best first. Every server accepts the last one.
    pub(super) fn methods(&self) -> &'static [Method] {
        match self {
            Self::CreateTable
            | Self::CreateDuplicates
            | Self::MoveDuplicates { .. }
            | Self::CreatePauses
            | Self::CreateRates
            | Self::CreateDocuments
            | Self::CreateArchive(_) => &[Method::Plain],
            // No clause names the method in all servers. Only rows of the partitions that are named are touched.
            Self::AddPartitions { .. } | Self::DropPartitions(_) => &[Method::ServersChoice],
            Self::ChangeKey { .. } | Self::ConvertKey { .. } => {
                &[Method::Copy, Method::ServersChoice]
            }
            Self::AddColumns(_)
            | Self::AddGenerated(_)
            | Self::AddToPauses(_)
            | Self::AddToArchive(_)
            | Self::DefaultZero(_) => &[
                Method::Instant,
                Method::InPlace,
                Method::Copy,
                Method::ServersChoice,
            ],
            // MySQL and MariaDB change the comment of a table in place, without reading its rows.
            Self::AddIndex(_) | Self::ReplaceIndex(_) | Self::Identify(_) => {
                &[Method::InPlace, Method::Copy, Method::ServersChoice]
            }
        }
    }

    /// True if programs work without it: then lists of recurring tasks are slow, or a backlog that may not start delays
    /// other overdue tasks.
    pub(super) fn is_optional(&self) -> bool {
        match self {
            Self::AddGenerated(column) => [RECURRING, METHOD_CRC].contains(column),
            Self::AddIndex(index) => [&IX_RECURRING, &IX_METHOD].contains(index),
            _ => false,
        }
    }

    /// True if the table of the step may exist although the server denies the step: this user may be unable to see it.
    pub(super) fn may_be_there(&self) -> bool {
        matches!(
            self,
            Self::CreatePauses | Self::CreateRates | Self::CreateDocuments | Self::CreateArchive(_)
        )
    }

    /// Returns the privileges that the step needs.
    #[must_use]
    pub fn privileges(&self) -> &'static str {
        match self {
            Self::CreateTable
            | Self::CreatePauses
            | Self::CreateRates
            | Self::CreateDocuments
            | Self::CreateArchive(_)
            | Self::CreateDuplicates => "CREATE",
            Self::AddPartitions { .. } | Self::DropPartitions(_) => {
                "ALTER, CREATE, DROP and INSERT"
            }
            Self::MoveDuplicates { .. } => "SELECT, INSERT and DELETE",
            Self::ChangeKey { .. }
            | Self::ConvertKey { .. }
            | Self::AddColumns(_)
            | Self::AddGenerated(_)
            | Self::AddToPauses(_)
            | Self::AddToArchive(_)
            | Self::ReplaceIndex(_)
            | Self::Identify(_)
            | Self::DefaultZero(_)
            | Self::AddIndex(_) => "ALTER, CREATE, INDEX and INSERT",
        }
    }

    /// Returns the method to request first. If the server refuses it, the next one is tried.
    #[must_use]
    pub fn method(&self) -> Method {
        self.methods()[0]
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CreateTable => f.write_str("create the table"),
            Self::ChangeKey {
                from,
                charset,
                length,
                ..
            } => write!(
                f,
                "change column `key` from {from} to varchar({length}) {charset}_bin, so that keys compare byte by byte"
            ),
            Self::ConvertKey { from, length, .. } => write!(
                f,
                "change column `key` from {from} to varchar({length}) utf8mb4_bin, so that keys may have any character"
            ),
            Self::AddColumns(names) => write!(f, "add columns {}", quoted(names)),
            Self::AddGenerated(name) => write!(f, "add generated column `{name}`"),
            Self::DefaultZero(name) => write!(f, "give column `{name}` the default 0"),
            Self::CreateDuplicates => {
                f.write_str("create a table for the surplus rows of duplicated keys")
            }
            Self::MoveDuplicates { rows } => write!(
                f,
                "move {rows} surplus rows of duplicated keys there (kept: the live row that falls due last, else the newest)"
            ),
            Self::AddIndex(index) if index.unique => write!(f, "add unique key `{}`", index.name),
            Self::AddIndex(index) => write!(f, "add key `{}`", index.name),
            Self::ReplaceIndex(index) => write!(f, "replace key `{}`", index.name),
            Self::Identify(_) => f.write_str("give the ledger an identity, in the table's comment"),
            Self::CreatePauses => f.write_str("create the table of pauses"),
            Self::AddToPauses(column) => write!(f, "add column `{column}` to the table of pauses"),
            Self::AddToArchive(column) => write!(f, "add column `{column}` to the archive"),
            Self::CreateRates => {
                f.write_str("create the table of rates, for daemons without redis")
            }
            Self::CreateDocuments => {
                f.write_str("create the table of documents, for the audit log and the history")
            }
            Self::CreateArchive(_) => f.write_str("create the archive of finished tasks"),
            Self::AddPartitions { months, .. } => {
                write!(f, "add {} partitions to the archive", months.len())
            }
            Self::DropPartitions(names) => {
                write!(f, "drop the partitions {} of the archive", names.join(", "))
            }
        }
    }
}

impl Method {
    /// Returns the server's name for the method. `None` if there is no ALTER TABLE, or the server chooses.
    #[must_use]
    pub fn algorithm(self) -> Option<&'static str> {
        match self {
            Self::Plain | Self::ServersChoice => None,
            Self::Instant => Some("INSTANT"),
            Self::InPlace => Some("INPLACE"),
            Self::Copy => Some("COPY"),
        }
    }

    /// Returns what other sessions cannot do meanwhile, as the server names it: `NONE`, or `SHARED` for writes. `None` as for
    /// [`algorithm`](Self::algorithm).
    #[must_use]
    pub fn lock(self) -> Option<&'static str> {
        match self {
            Self::Plain | Self::ServersChoice => None,
            Self::Instant | Self::InPlace => Some("NONE"),
            Self::Copy => Some("SHARED"),
        }
    }

    /// Returns the clause to append to an ALTER TABLE.
    pub(super) fn clause(self) -> &'static str {
        match self {
            Self::Plain | Self::ServersChoice => "",
            // Servers differ in whether they accept a LOCK clause with INSTANT.
            Self::Instant => ", ALGORITHM=INSTANT",
            Self::InPlace => ", ALGORITHM=INPLACE, LOCK=NONE",
            Self::Copy => ", ALGORITHM=COPY, LOCK=SHARED",
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain => "no ALTER TABLE, at most row locks",
            Self::Instant => "algorithm INSTANT, lock none",
            Self::InPlace => "algorithm INPLACE, lock NONE",
            Self::Copy => "algorithm COPY, lock SHARED (writers wait)",
            Self::ServersChoice => "algorithm and lock chosen by the server",
        })
    }
}

fn modify_key(length: u64, charset: &str, comment: &str) -> String {
    let comment = quotable(comment);
    format!(
        "MODIFY COLUMN `key` VARCHAR({length}) CHARACTER SET {charset} COLLATE {charset}_bin NOT NULL COMMENT '{comment}'"
    )
}

fn add_column(name: &str) -> String {
    format!("ADD COLUMN `{name}` {}", definition::definition(name))
}

fn quotable(text: &str) -> String {
    text.replace('\\', r"\\").replace('\'', "''")
}

fn quoted(names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}
