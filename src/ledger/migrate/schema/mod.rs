//! The wanted shape of the table, and what it takes to get there from a found one.

use super::introspect::{self, TableSchema};
use super::step::Step;
use super::{MigrateError, Options};
use crate::task::TableName;

/// The one place where columns are defined; new tables are made from it, old ones completed.
const CREATE: &str = include_str!("../../../../migrations/tb_time_limit_task.sql");

pub(super) const DUE_AT: &str = "due_at";
pub(super) const BUCKET: &str = "bucket";
const KEY: &str = "key";
const KEY_LENGTH: u64 = 255;

/// An index of the table.
#[derive(Debug, PartialEq, Eq)]
pub struct Index {
    /// Its name.
    pub name: &'static str,
    /// Whether it allows a value once.
    pub unique: bool,
    /// Its columns, in order.
    pub columns: &'static [&'static str],
}

static UK_KEY: Index = Index {
    name: "uk_key",
    unique: true,
    columns: &[KEY],
};
static IX_DUE: Index = Index {
    name: "ix_due",
    unique: false,
    columns: &["status", "sts", DUE_AT, "id", BUCKET],
};
/// What [`IX_DUE`] was before there were buckets.
static IX_DUE_BEFORE: Index = Index {
    name: "ix_due",
    unique: false,
    columns: &["status", "sts", DUE_AT, "id"],
};
static IX_TAG: Index = Index {
    name: "ix_tag",
    unique: false,
    columns: &["tag"],
};

/// What an existing column must be like for the statements of the ledger to work on it.
#[derive(Debug, Clone, Copy)]
enum Rule {
    Id,
    /// Judged by its type alone here: [`change_key`] repairs the rest.
    Key,
    /// 0, 1, 2, ...: any integer type holds it.
    Flag,
    /// Up to 65 535.
    Count,
    /// Unix seconds and milliseconds. More decimals would make `end_time` differ from what we write back.
    Time,
    /// 16 random bytes.
    Token,
    /// At least so many characters.
    Text(u64),
    DueAt,
    Bucket,
}

/// In the order of the table; those of the programs we adopt from come first.
const RULES: [(&str, Rule); 26] = [
    ("id", Rule::Id),
    (KEY, Rule::Key),
    ("status", Rule::Flag),
    ("start_time", Rule::Time),
    ("end_time", Rule::Time),
    ("sts", Rule::Flag),
    ("owner", Rule::Token),
    ("daemon", Rule::Text(64)),
    ("lease_until", Rule::Time),
    ("run_end", Rule::Time),
    ("retry_at", Rule::Time),
    ("attempt", Rule::Count),
    ("crashes", Rule::Flag),
    ("max_attempts", Rule::Count),
    ("adopted", Rule::Flag),
    ("tag", Rule::Text(128)),
    ("payload", Rule::Text((1 << 24) - 1)),
    ("last_error", Rule::Text((1 << 16) - 1)),
    ("reason", Rule::Text(32)),
    ("history", Rule::Text((1 << 24) - 1)),
    ("result", Rule::Text((1 << 24) - 1)),
    ("recurrence", Rule::Text((1 << 16) - 1)),
    ("finished_at", Rule::Time),
    ("changed_at", Rule::Time),
    (DUE_AT, Rule::DueAt),
    (BUCKET, Rule::Bucket),
];

/// A table without one of these is something else that happens to have our table's name.
const SEED_COLUMNS: [&str; 5] = ["id", KEY, "status", "start_time", "end_time"];
const DEFAULT_ZERO: [&str; 2] = ["status", "sts"];

pub(super) fn create_statement(table: &TableName) -> String {
    statement_of(CREATE, table)
}

/// A file of a statement, for this table.
pub(super) fn statement_of(file: &str, table: &TableName) -> String {
    file.lines()
        .filter(|line| !line.starts_with("--"))
        .map(|line| line.replace("{table}", table.as_str()))
        .collect::<Vec<_>>()
        .join("\n")
}

/// The definition of one of the table's columns.
pub(super) fn definition(name: &str) -> &'static str {
    let quoted = format!("`{name}`");
    CREATE
        .lines()
        .find_map(|line| line.trim_start().strip_prefix(&quoted))
        .and_then(|line| line.split(" -- ").next())
        .map(|line| line.trim().trim_end_matches(','))
        .expect("each name in `RULES` has its line: a test compares them")
}

impl Index {
    pub(super) fn definition(&self) -> String {
        let kind = if self.unique { "UNIQUE KEY" } else { "KEY" };
        format!("{kind} `{}` (`{}`)", self.name, self.columns.join("`, `"))
    }

    fn is(&self, found: &introspect::Index) -> bool {
        found.unique == self.unique
            && found.columns.len() == self.columns.len()
            && found
                .columns
                .iter()
                .zip(self.columns)
                .all(|(found, wanted)| found.eq_ignore_ascii_case(wanted))
    }
}

/// The steps from `found` to the wanted shape, in order. `surplus` counts the rows that a unique key would refuse,
/// `duplicates` is the table for them, if it exists.
pub(super) fn steps(
    table: &TableName,
    found: &TableSchema,
    options: &Options,
    surplus: u64,
    duplicates: Option<&TableSchema>,
) -> Result<Vec<Step>, MigrateError> {
    refuse_foreign(found)
        .and_then(|()| refuse_unfit_columns(found))
        .and_then(|()| refuse_unfit_indexes(found))
        .map_err(|problem| MigrateError::Incompatible {
            table: table.clone(),
            problem,
        })?;

    let mut steps = Vec::new();
    let converted = convert_key(found).filter(|_| options.utf8mb4);
    steps.extend(converted.or_else(|| change_key(found)));
    steps.extend(add_columns(found));
    steps.extend(defaults(found));
    if surplus > 0 {
        match duplicates {
            None => steps.push(Step::CreateDuplicates),
            Some(duplicates) => refuse_narrow_duplicates(table, found, duplicates)?,
        }
        steps.push(Step::MoveDuplicates { rows: surplus });
    }
    steps.extend(add_indexes(found));
    Ok(steps)
}

/// What `table` lacks, for one line of an error; `None` when nothing.
pub(super) fn first_lack(steps: &[Step]) -> Option<String> {
    let missing: Vec<&str> = steps
        .iter()
        .flat_map(|step| match step {
            Step::AddColumns(names) => names.clone(),
            Step::AddGenerated(name) => vec![*name],
            _ => vec![],
        })
        .collect();
    match missing[..] {
        [] => steps.first().map(|step| match step {
            Step::AddIndex(index) | Step::ReplaceIndex(index) => {
                format!("lacks index `{}`", index.name)
            }
            Step::CreatePauses => {
                "lacks its table of pauses, or this user has no right on that".to_owned()
            }
            other => format!("is not up to date ({other})"),
        }),
        [only] => Some(format!("lacks column `{only}`")),
        [first, ref more @ ..] => Some(format!("lacks column `{first}` (and {} more)", more.len())),
    }
}

/// Whether nothing but the unique key itself keeps a key from being inserted twice.
pub(super) fn lacks_unique_key(found: &TableSchema) -> bool {
    // Whatever its name: a table may have come by it on its own.
    !found.indexes.iter().any(|index| UK_KEY.is(index))
}

/// The collation under which the unique key will compare, if the column has another one now.
pub(super) fn key_collation_to_be(found: &TableSchema) -> Option<String> {
    match change_key(found)? {
        Step::ChangeKey { charset, .. } => Some(format!("{charset}_bin")),
        _ => None,
    }
}

fn refuse_foreign(found: &TableSchema) -> Result<(), String> {
    if found.kind != "BASE TABLE" {
        return Err(format!(
            "it is a {}, expected a table",
            found.kind.to_lowercase()
        ));
    }
    let engine = found.engine.as_deref().unwrap_or("unknown");
    if !engine.eq_ignore_ascii_case("InnoDB") {
        return Err(format!(
            "its engine is `{engine}`, expected `InnoDB`: change it with `ALTER TABLE ... ENGINE=InnoDB` first"
        ));
    }
    match SEED_COLUMNS
        .iter()
        .find(|name| found.column(name).is_none())
    {
        Some(name) => Err(format!(
            "it has no column `{name}`, so it is not a table of tasks"
        )),
        None => Ok(()),
    }
}

fn refuse_unfit_columns(found: &TableSchema) -> Result<(), String> {
    for column in &found.columns {
        let rule = RULES
            .iter()
            .find(|(name, _)| column.name.eq_ignore_ascii_case(name));
        match rule {
            Some((name, rule)) if !rule.admits(column) => {
                return Err(format!(
                    "column `{name}` is `{}`, expected `{}`",
                    describe(column),
                    definition(name)
                ));
            }
            None if !column.is_optional() => {
                return Err(format!(
                    "column `{}` has no default, so no row could be inserted without it: give it one",
                    column.name
                ));
            }
            _ => {}
        }
    }
    Ok(())
}

fn refuse_unfit_indexes(found: &TableSchema) -> Result<(), String> {
    let primary = found.indexes.iter().find(|index| index.name == "PRIMARY");
    if primary.is_none_or(|index| index.columns != ["id"]) {
        return Err("its primary key is not `id` alone".to_owned());
    }
    for wanted in [&UK_KEY, &IX_DUE, &IX_TAG] {
        let namesake = found
            .indexes
            .iter()
            .find(|index| index.name.eq_ignore_ascii_case(wanted.name));
        let fits = |index: &introspect::Index| wanted.is(index) || is_named_before(index);
        if let Some(found) = namesake.filter(|index| !fits(index)) {
            return Err(format!(
                "its index `{}` is on ({}), expected `{}`: rename or drop it first",
                found.name,
                found.columns.join(", "),
                wanted.definition()
            ));
        }
    }
    Ok(())
}

fn refuse_narrow_duplicates(
    table: &TableName,
    found: &TableSchema,
    duplicates: &TableSchema,
) -> Result<(), MigrateError> {
    let missing = found
        .stored_columns()
        .find(|column| duplicates.column(&column.name).is_none());
    missing.map_or(Ok(()), |column| {
        Err(MigrateError::Incompatible {
            table: table.clone(),
            problem: format!(
                "table `{}` for its surplus rows exists, but lacks column `{}`: rename it",
                table.duplicates(),
                column.name
            ),
        })
    })
}

impl Rule {
    fn admits(self, column: &introspect::Column) -> bool {
        let data_type = column.data_type.as_str();
        let is_integer = data_type.ends_with("int") || data_type == "integer";
        let has_type = match self {
            Self::Id => is_integer && column.is_auto_increment(),
            Self::Key => data_type == "varchar" && !column.nullable,
            Self::Flag => is_integer,
            Self::Count => is_integer && data_type != "tinyint",
            Self::Time => is_time(&column.column_type),
            Self::Token => column.column_type == "binary(16)",
            Self::Text(length) => {
                column.charset.is_some() && column.length >= length
                // A JSON column of MySQL has neither character set nor length.
                || data_type == "json"
            }
            Self::DueAt => is_time(&column.column_type) && is_generated_as(DUE_AT, column),
            Self::Bucket => data_type == "smallint" && is_generated_as(BUCKET, column),
        };
        let is_wanted_null = |wanted: &str| !wanted.contains("NOT NULL");
        let name = column.name.to_ascii_lowercase();
        let null_fits = match self {
            Self::DueAt | Self::Bucket => true,
            _ => column.nullable == is_wanted_null(definition(&name)),
        };
        // The first columns are always written; ours are not, by programs that do not know them.
        let default_fits = SEED_COLUMNS.contains(&name.as_str())
            || DEFAULT_ZERO.contains(&name.as_str())
            || column.is_optional();
        has_type && null_fits && default_fits
    }
}

fn is_time(column_type: &str) -> bool {
    let numbers = column_type
        .strip_prefix("decimal(")
        .and_then(|rest| rest.split(')').next())
        .and_then(|numbers| numbers.split_once(','));
    numbers.is_some_and(|(precision, scale)| {
        scale == "3"
            && precision
                .parse()
                .is_ok_and(|precision: u32| precision >= 13)
    })
}

/// Servers write an expression back with backticks, spaces and parentheses of their own.
fn is_generated_as(name: &str, column: &introspect::Column) -> bool {
    let bare = |text: &str| -> String {
        let text = text.to_ascii_lowercase();
        text.chars()
            .filter(|c| !matches!(c, '`' | '(' | ')') && !c.is_whitespace())
            .collect()
    };
    let wanted = definition(name)
        .split_once(" AS ")
        .and_then(|(_, rest)| rest.rsplit_once(' '))
        .map(|(expression, _kind)| expression)
        .expect("the definition reads `... AS (expression) KIND`");
    bare(&column.expression) == bare(wanted)
}

fn describe(column: &introspect::Column) -> String {
    let mut text = column.column_type.clone();
    if column.is_generated() {
        text += &format!(" AS ({})", column.expression);
    } else if !column.nullable {
        text += " NOT NULL";
    }
    text
}

fn change_key(found: &TableSchema) -> Option<Step> {
    let key = found.column(KEY)?;
    let collation = key.collation.as_deref().unwrap_or_default();
    if collation.ends_with("_bin") && key.length >= KEY_LENGTH {
        return None;
    }
    Some(Step::ChangeKey {
        from: format!("{} {collation}", key.column_type),
        charset: key.charset.clone()?,
        length: key.length.max(KEY_LENGTH),
        comment: key.comment.clone(),
    })
}

/// To `utf8mb4`, if it is something else.
fn convert_key(found: &TableSchema) -> Option<Step> {
    let key = found.column(KEY)?;
    if key.charset.as_deref() == Some("utf8mb4") {
        return None;
    }
    let collation = key.collation.as_deref().unwrap_or_default();
    Some(Step::ConvertKey {
        from: format!("{} {collation}", key.column_type),
        length: key.length.max(KEY_LENGTH),
        comment: key.comment.clone(),
    })
}

fn add_columns(found: &TableSchema) -> Vec<Step> {
    let missing = |name: &&str| found.column(name).is_none();
    let names: Vec<&'static str> = RULES
        .iter()
        .map(|(name, _)| *name)
        .filter(|name| ![DUE_AT, BUCKET].contains(name))
        .filter(missing)
        .collect();
    let stored = (!names.is_empty()).then_some(Step::AddColumns(names));
    let generated = [DUE_AT, BUCKET].into_iter().filter(missing);
    let generated = generated.map(Step::AddGenerated);
    stored.into_iter().chain(generated).collect()
}

/// A missing column is added with its default, so only found ones can lack it.
fn defaults(found: &TableSchema) -> Vec<Step> {
    DEFAULT_ZERO
        .into_iter()
        .filter(|name| {
            found
                .column(name)
                .is_some_and(|column| column.default.as_deref() != Some("0"))
        })
        .map(Step::DefaultZero)
        .collect()
}

fn add_indexes(found: &TableSchema) -> Vec<Step> {
    let has = |name: &str| {
        let mut indexes = found.indexes.iter();
        indexes.any(|index| index.name.eq_ignore_ascii_case(name))
    };
    let unique = lacks_unique_key(found).then_some(Step::AddIndex(&UK_KEY));
    let due = if found.indexes.iter().any(is_named_before) {
        Some(Step::ReplaceIndex(&IX_DUE))
    } else {
        (!has(IX_DUE.name)).then_some(Step::AddIndex(&IX_DUE))
    };
    let tag = (!has(IX_TAG.name)).then_some(Step::AddIndex(&IX_TAG));
    unique.into_iter().chain(due).chain(tag).collect()
}

fn is_named_before(index: &introspect::Index) -> bool {
    index.name.eq_ignore_ascii_case(IX_DUE_BEFORE.name) && IX_DUE_BEFORE.is(index)
}

#[cfg(test)]
mod tests;
