//! Table checks: the queries about the table and its rows, in order.

use sqlx::mysql::MySqlConnectOptions;
use sqlx::{MySqlConnection, Row as _};

use super::access::{self, GRANTS, Identity, PAUSES, SIDE_TABLES, TASKS};
use super::backlog::{BACKLOG, Backlog};
use super::capacity::{BUFFER_POOL, ID, buffer_pool, id_capacity, next_id, size};
use super::index::{
    AccessPlan, INDEX, KeyIndex, LEGACY_INDEX, explain, judge_plan, key_indexes, legacy_index,
};
use super::pauses;
use super::server::Variables;
use super::trials;
use crate::runner::{Runner, Unresponsive};
use lapsed::Config;
use lapsed::diagnosis::{Finding, Thresholds};
use lapsed::handler::{Handlers, Router};
use lapsed::ledger::migrate::{self, MigrateError};
use lapsed::ledger::mysql::queries::{self, Queries};
use lapsed::task::TableName;

const SHAPE: &str = "ledger.table";
const KEY_CHARSET: &str = "ledger.key_charset";

/// Checks the table: schema, privileges, indexes, capacity and backlog.
pub(super) async fn examine(
    config: &Config,
    options: &MySqlConnectOptions,
    table: &TableName,
    conn: &mut MySqlConnection,
    variables: Option<&Variables>,
    runner: &mut Runner,
) -> Result<(), Unresponsive> {
    let queries = Queries::new(table);
    let shape = async { passed(migrate::check(conn, table).await) };
    let shape = match runner.query(&[SHAPE], shape).await? {
        Some(shape) => shape,
        None => return Ok(()),
    };
    runner.add([judge_shape(table, &shape)]);
    if matches!(shape, Err(MigrateError::Absent { .. })) {
        return Ok(());
    }

    let judge = |charset: String| judge_key_charset(table, &charset);
    runner
        .check(KEY_CHARSET, key_charset(conn, table), judge)
        .await?;
    let identity = runner.query(&[GRANTS], Identity::read(conn)).await?;
    if let Some(identity) = &identity {
        let tables = std::slice::from_ref(&TASKS);
        access::examine(config, conn, (&queries, identity), tables, runner).await?;
    }
    if shape.is_ok() {
        let optional = async { passed(migrate::check_optional(conn, table).await) };
        let judge = |optional| judge_optional(table, &optional);
        runner.check(SHAPE, optional, judge).await?;
        if let Some(identity) = &identity {
            access::examine(config, conn, (&queries, identity), &SIDE_TABLES, runner).await?;
        }
        let active = pauses::count(conn, &queries);
        runner.check(PAUSES, active, pauses::judge).await?;
        trials::examine(options, conn, &queries, runner).await?;
        let judge = |plan: Option<AccessPlan>| judge_plan(table, plan.as_ref());
        runner.check(INDEX, explain(conn, &queries), judge).await?;
    }
    let judge = |indexes: Vec<KeyIndex>| legacy_index(table, &indexes);
    runner
        .check(LEGACY_INDEX, key_indexes(conn, table), judge)
        .await?;
    let judge = |next: Option<(u64, String)>| {
        next.map(|(next, column_type)| id_capacity(table, next, &column_type))
    };
    runner
        .check(ID, next_id(conn, table, &queries), judge)
        .await?;
    let pool = variables.and_then(|variables| variables.number("innodb_buffer_pool_size"));
    let judge = |size| buffer_pool(size, pool);
    runner.check(BUFFER_POOL, size(conn, table), judge).await?;
    if shape.is_ok() {
        let router = Router::new(Handlers::new(), config);
        let thresholds = Thresholds::from(&config.alerts);
        let judge = |backlog: Backlog| backlog.judge(&thresholds);
        let backlog = Backlog::read(conn, &queries, &router);
        runner.check(BACKLOG, backlog, judge).await?;
    }
    Ok(())
}

/// A wrong schema is a result, not a failure.
fn passed(check: Result<(), MigrateError>) -> Result<Result<(), MigrateError>, MigrateError> {
    match check {
        Err(error @ MigrateError::Sql { .. }) => Err(error),
        checked => Ok(checked),
    }
}

async fn key_charset(conn: &mut MySqlConnection, table: &TableName) -> sqlx::Result<String> {
    let question = sqlx::query(queries::KEY_CHARSET).bind(table.as_str());
    let found = question.fetch_optional(conn).await?;
    let charset = found.map(|row| row.try_get_unchecked::<Option<String>, _>(0));
    Ok(charset.transpose()?.flatten().unwrap_or_default())
}

fn judge_key_charset(table: &TableName, charset: &str) -> Finding {
    if charset == "utf8mb4" {
        return Finding::ok(KEY_CHARSET, "keys may have any character");
    }
    Finding::note(
        KEY_CHARSET,
        format!("column `key` of `{table}` is {charset}: a key with characters that it lacks (of four bytes, such as emoji, if it is utf8) is refused, and not adopted"),
    )
    .remedy("run `lapsed migrate --utf8mb4` (it copies the table; `--dry-run` shows the statement)")
}

fn judge_optional(table: &TableName, optional: &Result<(), MigrateError>) -> Option<Finding> {
    let Err(MigrateError::Outdated { difference, .. }) = optional else {
        return None;
    };
    let effect = match difference.contains("method") {
        true => "a backlog of tasks that may not start delays other overdue tasks",
        false => "lists of recurring tasks search the whole table",
    };
    Some(
        Finding::note(SHAPE, format!("`{table}` {difference}: {effect}"))
            .remedy("run `lapsed migrate` (reads and writes continue meanwhile)"),
    )
}

fn judge_shape(table: &TableName, shape: &Result<(), MigrateError>) -> Finding {
    let migrate = "run `lapsed migrate` (`lapsed migrate --dry-run` shows what it would do)";
    match shape {
        Ok(()) => Finding::ok(SHAPE, format!("`{table}` is as it should be")),
        Err(MigrateError::Absent { .. }) => Finding::error(
            SHAPE,
            format!("table `{table}` does not exist, or this user has no right on it"),
        )
        .remedy(migrate),
        Err(MigrateError::Outdated { difference, .. }) => {
            Finding::error(SHAPE, format!("table `{table}` {difference}")).remedy(migrate)
        }
        Err(error) => Finding::error(SHAPE, error.to_string())
            .remedy("fix the table by hand, or name another one in `ledger.table`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assertions::assert_is;
    use lapsed::diagnosis::Severity;

    #[test]
    fn a_key_column_that_lacks_characters_is_reported() {
        let judge = |charset| judge_key_charset(&TableName::new("tasks").unwrap(), charset);
        assert_is(&judge("utf8mb4"), Severity::Ok, "any character");
        assert_is(&judge("utf8mb3"), Severity::Note, "utf8mb3");
    }

    #[test]
    fn a_table_that_can_be_migrated_differs_from_one_that_cannot() {
        let table = || TableName::new("tasks").unwrap();
        let judge = |shape| judge_shape(&table(), &shape);
        let absent = judge(Err(MigrateError::Absent { table: table() }));
        let outdated = judge(Err(MigrateError::Outdated {
            table: table(),
            difference: "lacks index `ix_due`".to_owned(),
        }));
        let other = judge(Err(MigrateError::Incompatible {
            table: table(),
            problem: "`id` is a text".to_owned(),
        }));
        assert_is(&judge(Ok(())), Severity::Ok, "as it should be");
        assert_is(&absent, Severity::Error, "does not exist");
        assert_is(&outdated, Severity::Error, "lacks index `ix_due`");
        assert_is(&other, Severity::Error, "`id` is a text");
        let migrates = |finding: &Finding| finding.remedy.as_deref().unwrap().contains("migrate");
        assert_eq!(
            [absent, outdated, other].each_ref().map(migrates),
            [true, true, false]
        );
    }
}
