//! Rules for the columns of an existing table.

use super::definition::{BUCKET, DUE_AT, KEY, METHOD_CRC, RECURRING, definition};
use super::introspect::Column;

/// What an existing column must be like, so that the statements of the ledger work on it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Rule {
    Id,
    /// The key. Only its type is checked here: [`compare`](super::compare) repairs the rest.
    Key,
    /// 0, 1, 2, ...: any integer type holds it.
    Flag,
    /// Up to 65 535.
    Count,
    /// Unix seconds and milliseconds. With more decimals, `end_time` would differ from what the ledger writes back.
    Time,
    /// 16 random bytes.
    Token,
    /// At least this many characters.
    Text(u64),
    DueAt,
    Bucket,
    Recurring,
    MethodCrc,
}

/// In the order of the table. Columns of the programs from which tables are adopted come first.
pub(super) const RULES: [(&str, Rule); 30] = [
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
    ("progress", Rule::Text(255)),
    ("claimed_at", Rule::Time),
    (DUE_AT, Rule::DueAt),
    (BUCKET, Rule::Bucket),
    (RECURRING, Rule::Recurring),
    (METHOD_CRC, Rule::MethodCrc),
];

/// Columns without which a table is not a table of tasks.
pub(super) const SEED_COLUMNS: [&str; 5] = ["id", KEY, "status", "start_time", "end_time"];

pub(super) const DEFAULT_ZERO: [&str; 2] = ["status", "sts"];

impl Rule {
    pub(super) fn admits(self, column: &Column) -> bool {
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
            Self::Recurring => is_integer && is_generated_as(RECURRING, column),
            Self::MethodCrc => data_type == "int" && is_generated_as(METHOD_CRC, column),
        };
        let is_wanted_null = |wanted: &str| !wanted.contains("NOT NULL");
        let name = column.name.to_ascii_lowercase();
        let null_fits = match self {
            Self::DueAt | Self::Bucket | Self::Recurring | Self::MethodCrc => true,
            _ => column.nullable == is_wanted_null(definition(&name)),
        };
        // Every program writes the first columns. Programs that do not know the others need their defaults.
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

/// Compares generation expressions. Servers write them back with backticks, spaces and parentheses of their own, and MySQL
/// texts with their character set and escaped quotes.
fn is_generated_as(name: &str, column: &Column) -> bool {
    let bare = |text: &str| -> String {
        let text = text.to_ascii_lowercase();
        let text = text.replace("_utf8mb4", "").replace("\\'", "'");
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

#[cfg(test)]
mod tests {
    use super::super::definition::CREATE;
    use super::*;

    #[test]
    fn every_column_of_the_table_has_its_rule_in_the_same_order() {
        let defined: Vec<&str> = CREATE
            .lines()
            .filter_map(|line| line.trim_start().strip_prefix('`')?.split('`').next())
            .collect();
        assert_eq!(defined, RULES.map(|(name, _)| name));
    }

    #[test]
    fn generated_columns_are_recognised_as_each_server_writes_them_back() {
        let is = |name, expression: &str| {
            let column = Column {
                expression: expression.to_owned(),
                ..Column::default()
            };
            is_generated_as(name, &column)
        };
        let mariadb = "if(`run_end` = `end_time`,greatest(`end_time`,`retry_at`),`end_time`)";
        let mysql = "if((`run_end` = `end_time`),greatest(`end_time`,`retry_at`),`end_time`)";
        assert!(is(DUE_AT, mariadb) && is(DUE_AT, mysql));
        assert!(!is(DUE_AT, "greatest(`end_time`,`retry_at`)"));
        let mariadb = "crc32(convert(`key` using utf8mb4)) & 16383";
        let mysql = "(crc32(convert(`key` using utf8mb4)) & 16383)";
        assert!(is(BUCKET, mariadb) && is(BUCKET, mysql));
        assert!(!is(BUCKET, "crc32(`key`)"));
        let mariadb = "if(`recurrence` is null,NULL,1)";
        let mysql = "if((`recurrence` is null),NULL,1)";
        assert!(is(RECURRING, mariadb) && is(RECURRING, mysql));
        assert!(!is(RECURRING, "if(`recurrence` is null,0,1)"));
        let mariadb = "if(`status` = 0 and `sts` = 0,crc32(substring_index(convert(`key` using utf8mb4),'@',2)),NULL)";
        let mysql = "if(((`status` = 0) and (`sts` = 0)),crc32(substring_index(convert(`key` using utf8mb4),_utf8mb4\\'@\\',2)),NULL)";
        assert!(is(METHOD_CRC, mariadb) && is(METHOD_CRC, mysql));
        assert!(!is(
            METHOD_CRC,
            "crc32(substring_index(convert(`key` using utf8mb4),'@',2))"
        ));
    }
}
