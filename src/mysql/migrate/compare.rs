//! Compares a found table with the definition: refuses what cannot be adopted, and lists the steps to the rest.

use super::column_rules::{DEFAULT_ZERO, RULES, SEED_COLUMNS};
use super::definition::{
    BUCKET, DUE_AT, IX_DUE, IX_DUE_BEFORE, IX_METHOD, IX_RECURRING, IX_TAG, KEY, METHOD_CRC,
    RECURRING, UK_KEY, definition,
};
use super::introspect::{self, TableSchema};
use super::step::Step;
use super::{MigrateError, Options, identity};
use lapsed_core::task::TableName;

const KEY_LENGTH: u64 = 255;

const GENERATED: [&str; 4] = [DUE_AT, BUCKET, RECURRING, METHOD_CRC];

/// Returns the steps from `found` to the definition, in order. `surplus` is the number of rows that a unique key would
/// refuse; `duplicates` is the table for them, if it exists.
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

/// Returns what the table lacks, for an error of one line; `None` if nothing.
pub(super) fn first_difference(steps: &[Step]) -> Option<String> {
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
                "lacks its table of pauses, or this user has no privileges on it".to_owned()
            }
            Step::AddToPauses(column) => format!("lacks column `{column}` in its table of pauses"),
            other => format!("is not up to date ({other})"),
        }),
        [only] => Some(format!("lacks column `{only}`")),
        [first, ref more @ ..] => Some(format!("lacks column `{first}` (and {} more)", more.len())),
    }
}

/// True if the table lacks the unique key.
pub(super) fn has_no_unique_key(found: &TableSchema) -> bool {
    // Under any name: a table may have its own.
    !found.indexes.iter().any(|index| UK_KEY.is(index))
}

/// Returns the collation of the unique key, if the column has another one now.
pub(super) fn key_collation_to_be(found: &TableSchema) -> Option<String> {
    match change_key(found)? {
        Step::ChangeKey { charset, .. } => Some(format!("{charset}_bin")),
        _ => None,
    }
}

/// Returns the step that adds an identity to the comment of a table, if it has none.
pub(super) fn add_identity(found: &TableSchema) -> Option<Step> {
    let comment = &found.comment;
    identity::of_comment(comment).is_none().then(|| {
        let comment = format!("{comment} {}", identity::random());
        Step::Identify(comment.trim().to_owned())
    })
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
    for wanted in [&UK_KEY, &IX_DUE, &IX_TAG, &IX_METHOD, &IX_RECURRING] {
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

/// Returns the step to `utf8mb4`, if the column has another character set.
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
        .filter(|name| !GENERATED.contains(name))
        .filter(missing)
        .collect();
    let stored = (!names.is_empty()).then_some(Step::AddColumns(names));
    let generated = GENERATED.into_iter().filter(missing);
    let generated = generated.map(Step::AddGenerated);
    stored.into_iter().chain(generated).collect()
}

/// Returns the steps that add a default. Only found columns can lack it, since missing ones are added with theirs.
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
    let unique = has_no_unique_key(found).then_some(Step::AddIndex(&UK_KEY));
    let due = if found.indexes.iter().any(is_named_before) {
        Some(Step::ReplaceIndex(&IX_DUE))
    } else {
        (!has(IX_DUE.name)).then_some(Step::AddIndex(&IX_DUE))
    };
    let others = [&IX_TAG, &IX_METHOD, &IX_RECURRING].into_iter();
    let others = others.filter(|index| !has(index.name)).map(Step::AddIndex);
    unique.into_iter().chain(due).chain(others).collect()
}

fn is_named_before(index: &introspect::Index) -> bool {
    index.name.eq_ignore_ascii_case(IX_DUE_BEFORE.name) && IX_DUE_BEFORE.is(index)
}
