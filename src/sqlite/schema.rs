//! The tables: their definition and their format.

use std::path::Path;

use rusqlite::{Connection, OptionalExtension as _};

use lapsed_core::task::TableName;

/// Version of the format that this program writes. A change after which older programs can still use the file keeps it.
const FORMAT: i64 = 1;

/// Part of the message for a file of a newer format.
pub const NEWER: &str = "it was written by a newer version of lapsed";

const DEFINITION: &str = include_str!("migrations/sqlite.sql");

/// A column that earlier versions did not have: the end of the table's name, its name and its definition.
type Later = (&'static str, &'static str, &'static str);

/// A migration adds them.
const LATER: [Later; 4] = [
    ("", "progress", "TEXT"),
    ("", "claimed_at", "INTEGER NOT NULL DEFAULT 0"),
    ("_archive", "claimed_at", "INTEGER NOT NULL DEFAULT 0"),
    ("_pauses", "until", "INTEGER"),
];

/// Reason why a database is not a ledger that this program can use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Problem {
    NoTable,
    NoColumn(Later),
    Newer(i64),
}

impl Problem {
    pub fn describe(self, path: &Path, table: &TableName) -> String {
        let path = path.display();
        match self {
            Self::NoTable => {
                format!("`{path}` has no table `{table}`: run `lapsed migrate`")
            }
            Self::NoColumn((part, column, _)) => {
                format!(
                    "`{path}`: table `{table}{part}` lacks column `{column}`: run `lapsed migrate`"
                )
            }
            Self::Newer(found) => {
                format!("`{path}` has format {found}, expected {FORMAT}: {NEWER}")
            }
        }
    }
}

/// Checks that the tables exist in a format that this program knows, with every column that it uses.
pub(super) fn check(
    connection: &Connection,
    table: &TableName,
) -> rusqlite::Result<Result<(), Problem>> {
    if let Err(problem) = check_format(connection, table)? {
        return Ok(Err(problem));
    }
    Ok(match missing_columns(connection, table)?.first() {
        None => Ok(()),
        Some(column) => Err(Problem::NoColumn(*column)),
    })
}

/// Checks that the tables exist in a format that this program knows.
pub(super) fn check_format(
    connection: &Connection,
    table: &TableName,
) -> rusqlite::Result<Result<(), Problem>> {
    Ok(match format(connection, table)? {
        None => Err(Problem::NoTable),
        Some(found) if found > FORMAT => Err(Problem::Newer(found)),
        Some(_) => Ok(()),
    })
}

pub(super) fn format(connection: &Connection, table: &TableName) -> rusqlite::Result<Option<i64>> {
    let name = format!("{table}_format");
    if !connection.table_exists(None::<&str>, name.as_str())? {
        return Ok(None);
    }
    let version = format!("SELECT version FROM \"{name}\"");
    connection
        .query_row(&version, [], |row| row.get(0))
        .optional()
}

/// Returns the statements that create what a database lacks; empty if it lacks nothing.
pub(super) fn missing(connection: &Connection, table: &TableName) -> rusqlite::Result<Vec<String>> {
    if format(connection, table)?.is_none() {
        return Ok(statements(table));
    }
    let mut missing = Vec::new();
    for name in [table.documents(), table.archive().to_string()] {
        if !connection.table_exists(None::<&str>, name.as_str())? {
            missing.push(format!("\"{name}\" ("));
        }
    }
    for index in ["recurring", "method"].map(|name| format!("{table}_{name}")) {
        if !index_exists(connection, &index)? {
            missing.push(format!("INDEX \"{index}\""));
        }
    }
    let mut statements = statements(table);
    statements.retain(|statement| missing.iter().any(|part| statement.contains(part)));
    for (part, column, definition) in missing_columns(connection, table)? {
        statements.push(format!(
            "ALTER TABLE \"{table}{part}\" ADD COLUMN {column} {definition}"
        ));
    }
    Ok(statements)
}

/// Returns those of [`LATER`] that tables lack which exist.
fn missing_columns(connection: &Connection, table: &TableName) -> rusqlite::Result<Vec<Later>> {
    let mut missing = Vec::new();
    for later in LATER {
        let (part, column, _) = later;
        let name = format!("{table}{part}");
        if connection.table_exists(None::<&str>, name.as_str())?
            && !connection.column_exists(None::<&str>, name.as_str(), column)?
        {
            missing.push(later);
        }
    }
    Ok(missing)
}

fn index_exists(connection: &Connection, name: &str) -> rusqlite::Result<bool> {
    let found = "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'index' AND name = ?1)";
    connection.query_row(found, [name], |row| row.get(0))
}

/// Returns the statements that create the tables.
pub(super) fn statements(table: &TableName) -> Vec<String> {
    let lines = DEFINITION.lines().map(|line| {
        let code = line.split("--").next().unwrap_or_default();
        code.trim_end()
    });
    let text = lines
        .filter(|line| !line.is_empty())
        .collect::<Vec<_>>()
        .join("\n")
        .replace("{table}", table.as_str());
    let created = text.split(';').map(str::trim).map(str::to_owned);
    let version = format!(
        "INSERT INTO \"{table}_format\" (version, identity) VALUES ({FORMAT}, lower(hex(randomblob(16))))"
    );
    created
        .filter(|statement| !statement.is_empty())
        .chain([version])
        .collect()
}
