//! What can be wrong with the ledger's table, and with what is in it.

use std::time::Duration;

use sqlx::mysql::{MySqlArguments, MySqlRow};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Column, MySql, MySqlConnection, Row};

use super::checkup::{Checkup, Silent};
use super::ledger::{clock, number};
use super::server::Variables;
use super::units::{bytes, count, span};
use super::{Finding, Severity, pauses, rates};
use crate::Config;
use crate::handler::{HandlerRegistry, Router};
use crate::ledger::migrate::{self, MigrateError, Table};
use crate::ledger::mysql::queries::{Queries, SCAN_OVERDUE_OLDEST};
use crate::task::{TaskKey, UnixMs};

const SHAPE: &str = "ledger.table";
const GRANTS: &str = "ledger.grants";
const INDEX: &str = "ledger.index";
const LEGACY_INDEX: &str = "ledger.legacy_index";
const ID: &str = "ledger.id";
const BUFFER_POOL: &str = "ledger.buffer_pool";
const BACKLOG: &str = "ledger.backlog";

/// Overdue rows are counted so far.
const BACKLOG_MAX: u32 = 10_000;

/// The server's number for an index that a statement forces and that cannot be used.
const NO_SUCH_INDEX: u16 = 1176;

const IDENTITY: &str = "SELECT CAST(CURRENT_USER() AS CHAR), CAST(DATABASE() AS CHAR)";

const SIZE: &str = "SELECT CAST(COALESCE(DATA_LENGTH, 0) + COALESCE(INDEX_LENGTH, 0) AS SIGNED) \
     FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ?";

/// The next id as far as the server tells, and the type that has to hold it.
const NEXT_ID: &str = "SELECT CAST(COALESCE(t.AUTO_INCREMENT, 0) AS SIGNED), CAST(c.COLUMN_TYPE AS CHAR) \
     FROM information_schema.TABLES t JOIN information_schema.COLUMNS c \
       ON c.TABLE_SCHEMA = t.TABLE_SCHEMA AND c.TABLE_NAME = t.TABLE_NAME AND c.COLUMN_NAME = 'id' \
     WHERE t.TABLE_SCHEMA = DATABASE() AND t.TABLE_NAME = ?";

const LAST_ID: &str = "SELECT CAST(COALESCE(MAX(id), 0) AS SIGNED) FROM `{t}`";

/// Indexes on `key` alone.
const KEY_INDEXES: &str = "SELECT CAST(s.INDEX_NAME AS CHAR), CAST(MIN(s.NON_UNIQUE) AS SIGNED) \
     FROM information_schema.STATISTICS s WHERE s.TABLE_SCHEMA = DATABASE() AND s.TABLE_NAME = ? \
     GROUP BY s.INDEX_NAME HAVING COUNT(*) = 1 AND MIN(s.COLUMN_NAME) = 'key'";

/// Each matches no row, names only columns that every table has, and is refused without its right.
const TRIALS: [(&str, &str); 4] = [
    ("SELECT", "SELECT id FROM `{t}` WHERE id = 0"),
    (
        "INSERT",
        "INSERT INTO `{t}` (`key`, status, start_time, end_time, sts) SELECT '', 0, 0, 0, 0 FROM DUAL WHERE 1 = 0",
    ),
    ("UPDATE", "UPDATE `{t}` SET status = status WHERE id = 0"),
    (DELETE, "DELETE FROM `{t}` WHERE id = 0"),
];

/// Only what deletes rows needs it: `[retention]`, and people who prune and discard.
const DELETE: &str = "DELETE";

/// Examines the table: its shape, the rights on it, its indexes, its room to grow, its backlog.
pub(super) async fn examine(
    config: &Config,
    table: &Table,
    conn: &mut MySqlConnection,
    variables: Option<&Variables>,
    checkup: &mut Checkup,
) -> Result<(), Silent> {
    let queries = Queries::new(table);
    let shape = match checkup.learn(&[SHAPE], look(conn, table)).await? {
        Some(shape) => shape,
        None => return Ok(()),
    };
    checkup.add([judge_shape(table, &shape)]);
    if matches!(shape, Err(MigrateError::Absent { .. })) {
        return Ok(());
    }

    let identity = checkup.learn(&[GRANTS], identity(conn)).await?;
    let refused = checkup.learn(&[GRANTS], refused(conn, &queries)).await?;
    if let (Some(identity), Some(refused)) = (identity, refused) {
        let deletes = !config.retention.is_off();
        checkup.add(grants(table, &identity, &refused, deletes));
    }
    if shape.is_ok() {
        pauses::examine(conn, &queries, checkup).await?;
        rates::examine(config, conn, &queries, checkup).await?;
        let plan = checkup.learn(&[INDEX], explain(conn, &queries)).await?;
        checkup.add(plan.map(|plan| judge_plan(table, plan.as_ref())));
    }
    let indexes = key_indexes(conn, table);
    if let Some(indexes) = checkup.learn(&[LEGACY_INDEX], indexes).await? {
        checkup.add(legacy_index(table, &indexes));
    }
    let room = next_id(conn, table, &queries);
    if let Some(Some((next, column_type))) = checkup.learn(&[ID], room).await? {
        checkup.add([id_room(table, next, &column_type)]);
    }
    let size = checkup.learn(&[BUFFER_POOL], size(conn, table)).await?;
    let pool = variables.and_then(|variables| variables.number("innodb_buffer_pool_size"));
    checkup.add(size.map(|size| buffer_pool(size, pool)));
    if shape.is_ok() {
        let router = Router::new(HandlerRegistry::new(), config);
        let backlog = Backlog::read(conn, &queries, &router);
        let backlog = checkup.learn(&[BACKLOG], backlog).await?;
        checkup.add(backlog.map(|backlog| backlog.judge()));
    }
    Ok(())
}

/// A table that is not as it should be is an answer, not a failure.
async fn look(
    conn: &mut MySqlConnection,
    table: &Table,
) -> Result<Result<(), MigrateError>, MigrateError> {
    match migrate::check(conn, table).await {
        Err(error @ MigrateError::Sql { .. }) => Err(error),
        looked => Ok(looked),
    }
}

fn judge_shape(table: &Table, shape: &Result<(), MigrateError>) -> Finding {
    let migrate = "run `lapsed migrate` (`lapsed migrate --dry-run` shows what it would do)";
    match shape {
        Ok(()) => Finding::ok(SHAPE, format!("`{table}` is as it should be")),
        Err(MigrateError::Absent { .. }) => Finding::error(
            SHAPE,
            format!("table `{table}` does not exist, or this user has no right on it"),
        )
        .remedy(migrate),
        Err(MigrateError::Outdated { lack, .. }) => {
            Finding::error(SHAPE, format!("table `{table}` {lack}")).remedy(migrate)
        }
        Err(error) => Finding::error(SHAPE, error.to_string())
            .remedy("mend the table by hand, or name another one in `ledger.table`"),
    }
}

/// Who this session is, and its database.
async fn identity(conn: &mut MySqlConnection) -> sqlx::Result<(String, String)> {
    let row = sqlx::query(IDENTITY).fetch_one(conn).await?;
    Ok((row.try_get(0)?, row.try_get(1)?))
}

/// A right that is refused, why, and whether it is a matter of rights at all.
struct Refused {
    right: &'static str,
    why: String,
    by_grants: bool,
}

async fn refused(conn: &mut MySqlConnection, queries: &Queries) -> sqlx::Result<Vec<Refused>> {
    let mut refused = Vec::new();
    for (right, trial) in TRIALS {
        let tried = statement(queries.plain(trial)).execute(&mut *conn).await;
        match tried {
            Ok(_) => {}
            Err(error) => match error.as_database_error() {
                Some(refusal) => refused.push(Refused {
                    right,
                    why: refusal.message().to_owned(),
                    by_grants: matches!(number(&error), Some(1044 | 1142 | 1143 | 1227 | 1370)),
                }),
                None => return Err(error),
            },
        }
    }
    Ok(refused)
}

/// `deletes`: whether a daemon with this configuration deletes rows.
fn grants(
    table: &Table,
    (user, database): &(String, String),
    refused: &[Refused],
    deletes: bool,
) -> Vec<Finding> {
    let is_spare = |refused: &&Refused| refused.right == DELETE && !deletes;
    let (spare, needed): (Vec<&Refused>, Vec<&Refused>) = refused.iter().partition(is_spare);
    let (by_grants, otherwise): (Vec<&Refused>, Vec<&Refused>) =
        needed.iter().partition(|refused| refused.by_grants);
    // `CURRENT_USER()` answers `name@host`, and a name may hold an `@`.
    let (name, host) = user.rsplit_once('@').unwrap_or((user, "%"));
    let grant =
        |rights: &str| format!("`GRANT {rights} ON {database}.{table} TO '{name}'@'{host}'`");
    let mut findings = Vec::new();
    if !by_grants.is_empty() {
        let rights: Vec<&str> = by_grants.iter().map(|refused| refused.right).collect();
        let rights = rights.join(", ");
        findings.push(
            Finding::error(GRANTS, format!("{user} may not {rights} on `{table}`"))
                .remedy(grant(&rights)),
        );
    }
    for Refused { right, why, .. } in otherwise {
        findings.push(
            Finding::error(GRANTS, format!("{right} on `{table}` is refused: {why}"))
                .remedy("mend what the server complains about"),
        );
    }
    if findings.is_empty() {
        let rights = match spare.is_empty() {
            true => "SELECT, INSERT, UPDATE and DELETE",
            false => "SELECT, INSERT and UPDATE",
        };
        findings.push(Finding::ok(GRANTS, format!("{user} may {rights}")));
    }
    if !spare.is_empty() {
        findings.push(
            Finding::note(
                GRANTS,
                format!("{user} may not DELETE on `{table}`: `lapsed prune`, `lapsed discard` and `[retention]` need that, nothing else does"),
            )
            .remedy(format!("{}, for whoever is to prune", grant(DELETE))),
        );
    }
    findings
}

/// How the server would look for what is due: the index, and the kind of access where it says so.
#[derive(Debug, PartialEq, Eq)]
struct AccessPlan {
    uses_index: bool,
    access: Option<String>,
}

/// `None`: the index is there, but the server may not use it.
async fn explain(
    conn: &mut MySqlConnection,
    queries: &Queries,
) -> sqlx::Result<Option<AccessPlan>> {
    // MySQL 9 would tell in prose, which does not say whether the whole index is read.
    let question = format!(
        "EXPLAIN FORMAT=TRADITIONAL {}",
        queries.plain(SCAN_OVERDUE_OLDEST)
    );
    let rows = match scan(question, 1).fetch_all(conn).await {
        Err(error) if number(&error) == Some(NO_SUCH_INDEX) => return Ok(None),
        rows => rows?,
    };
    let text = |row: &MySqlRow, name: &str| {
        let column = row.columns().iter().find(|column| column.name() == name)?;
        row.try_get_unchecked::<Option<String>, _>(column.ordinal())
            .ok()
            .flatten()
    };
    // The classic form has a column for the index; others tell in prose.
    let is_classic = |row: &MySqlRow| row.columns().iter().any(|column| column.name() == "key");
    let in_prose = |row: &MySqlRow| {
        (0..row.columns().len()).any(|index| {
            row.try_get_unchecked::<Option<String>, _>(index)
                .is_ok_and(|text| text.is_some_and(|text| text.contains("ix_due")))
        })
    };
    let uses_index = |row: &MySqlRow| match is_classic(row) {
        true => text(row, "key").is_some_and(|key| key == "ix_due"),
        false => in_prose(row),
    };
    Ok(Some(AccessPlan {
        uses_index: rows.iter().any(uses_index),
        access: rows.first().and_then(|row| text(row, "type")),
    }))
}

fn judge_plan(table: &Table, plan: Option<&AccessPlan>) -> Finding {
    let Some(AccessPlan { uses_index, access }) = plan else {
        return Finding::error(
            INDEX,
            "`ix_due` is ignored or invisible: every sweep is refused",
        )
        .remedy(format!(
            "`ALTER TABLE {table} ALTER INDEX ix_due NOT IGNORED` (MySQL: `VISIBLE`)"
        ));
    };
    let scans = matches!(access.as_deref(), Some("ALL" | "index"));
    if *uses_index && !scans {
        return Finding::ok(INDEX, "what is due is found through `ix_due`");
    }
    Finding::warning(
        INDEX,
        "what is due is not found through `ix_due`: each sweep reads the whole table",
    )
    .remedy(
        "run `ANALYZE TABLE` on it; if that does not help, drop `ix_due` and run `lapsed migrate`",
    )
}

/// An index on `key` alone, and whether it is unique.
struct KeyIndex {
    name: String,
    unique: bool,
}

async fn key_indexes(conn: &mut MySqlConnection, table: &Table) -> sqlx::Result<Vec<KeyIndex>> {
    let rows = sqlx::query(KEY_INDEXES)
        .bind(table.as_str())
        .fetch_all(conn)
        .await?;
    rows.iter()
        .map(|row| {
            Ok(KeyIndex {
                name: row.try_get(0)?,
                unique: row.try_get::<i64, _>(1)? == 0,
            })
        })
        .collect()
}

fn legacy_index(table: &Table, indexes: &[KeyIndex]) -> Option<Finding> {
    let unique = indexes.iter().find(|index| index.unique)?;
    let spare = indexes.iter().find(|index| !index.unique)?;
    let (unique, spare) = (&unique.name, &spare.name);
    Some(
        Finding::note(
            LEGACY_INDEX,
            format!("index `{spare}` holds nothing that `{unique}` does not, and each insert writes both"),
        )
        .remedy(format!("`ALTER TABLE {table} DROP INDEX {spare}`")),
    )
}

async fn next_id(
    conn: &mut MySqlConnection,
    table: &Table,
    queries: &Queries,
) -> sqlx::Result<Option<(u64, String)>> {
    let told = sqlx::query(NEXT_ID)
        .bind(table.as_str())
        .fetch_optional(&mut *conn)
        .await?;
    let Some(told) = told else {
        return Ok(None);
    };
    let last = statement(queries.plain(LAST_ID)).fetch_one(conn).await?;
    let (told, column_type): (i64, String) = (told.try_get(0)?, told.try_get(1)?);
    let next = told.max(last.try_get::<i64, _>(0)?);
    Ok(Some((next.unsigned_abs(), column_type)))
}

/// `column_type` as in `int(10) unsigned`.
fn id_room(table: &Table, next: u64, column_type: &str) -> Finding {
    let column_type = column_type.to_ascii_lowercase();
    let word = column_type.split([' ', '(']).next().unwrap_or_default();
    let bits = match word {
        "tinyint" => 8,
        "smallint" => 16,
        "mediumint" => 24,
        "int" | "integer" => 32,
        _ => 64,
    };
    let signed = u32::from(!column_type.contains("unsigned"));
    let most = u64::MAX >> (64 - bits + signed);
    let used = next as f64 / most as f64;
    if used <= 0.8 {
        return Finding::ok(
            ID,
            format!(
                "{:.0} % of the ids of `{column_type}` are used",
                used * 100.0
            ),
        );
    }
    Finding::warning(
        ID,
        format!(
            "{:.0} % of the ids of `{column_type}` are used ({} of {}): after the last one no task can be created; each re-creation of a key uses one up too",
            used * 100.0,
            count(next),
            count(most)
        ),
    )
    .remedy(format!(
        "`ALTER TABLE {table} MODIFY id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT`: it copies the table, and writers wait meanwhile"
    ))
}

async fn size(conn: &mut MySqlConnection, table: &Table) -> sqlx::Result<u64> {
    let row = sqlx::query(SIZE)
        .bind(table.as_str())
        .fetch_optional(conn)
        .await?;
    let size: i64 = row.map_or(Ok(0), |row| row.try_get(0))?;
    Ok(size.unsigned_abs())
}

fn buffer_pool(size: u64, pool: Option<u64>) -> Finding {
    let Some(pool) = pool else {
        return Finding::unknown(
            BUFFER_POOL,
            "the server does not show `innodb_buffer_pool_size`",
        );
    };
    let (has, needs) = (bytes(pool), bytes(size));
    if size <= pool {
        let found = format!("the table and its indexes ({needs}) fit into the buffer pool ({has})");
        return Finding::ok(BUFFER_POOL, found);
    }
    Finding::warning(
        BUFFER_POOL,
        format!("the table and its indexes ({needs}) do not fit into the buffer pool ({has}): measured, that takes throughput from 20 000 tasks a second to 3 000"),
    )
    .remedy(format!(
        "set `innodb_buffer_pool_size` to {} or more, or delete rows that are finished (`status` 1 to 3)",
        bytes(size.saturating_add(size / 4))
    ))
}

/// What is due and waits for a daemon.
#[derive(Debug)]
struct Backlog {
    with_route: usize,
    without_route: usize,
    /// Whether there is more than that.
    more: bool,
    /// How long the first has waited.
    oldest: Duration,
}

impl Backlog {
    async fn read(
        conn: &mut MySqlConnection,
        queries: &Queries,
        router: &Router,
    ) -> sqlx::Result<Self> {
        let now = clock(conn).await?;
        let question = scan(queries.plain(SCAN_OVERDUE_OLDEST), BACKLOG_MAX + 1);
        let mut rows = question.fetch_all(conn).await?;
        let more = rows.len() > BACKLOG_MAX as usize;
        rows.truncate(BACKLOG_MAX as usize);
        let oldest = match rows.first() {
            Some(row) => now.since(UnixMs(row.try_get("due_ms")?)),
            None => Duration::ZERO,
        };
        let is_routed = |row: &&MySqlRow| {
            let key = row.try_get_unchecked::<String, _>("key").ok();
            let key = key.and_then(|key| TaskKey::parse(&key).ok());
            key.is_some_and(|key| router.find(&key).is_some())
        };
        let with_route = rows.iter().filter(is_routed).count();
        Ok(Self {
            with_route,
            without_route: rows.len() - with_route,
            more,
            oldest,
        })
    }

    fn judge(&self) -> Finding {
        let Self {
            with_route,
            without_route,
            more,
            oldest,
        } = self;
        let all = with_route + without_route;
        if all == 0 {
            return Finding::ok(BACKLOG, "nothing is overdue");
        }
        let all = match more {
            true => format!("more than {}", count(u64::from(BACKLOG_MAX))),
            false => count(all as u64),
        };
        let are = if all == "1" { "task is" } else { "tasks are" };
        let (have, run) = if *with_route == 1 {
            ("has", "runs")
        } else {
            ("have", "run")
        };
        let (lack, stay) = if *without_route == 1 {
            ("has", "stays")
        } else {
            ("have", "stay")
        };
        let of_those = if *more { "of the oldest of them, " } else { "" };
        let found = format!(
            "{all} {are} overdue, the oldest for {}: {of_those}{} {have} a route here and {run} as soon as a daemon starts, {} {lack} none and {stay}",
            span(*oldest),
            count(*with_route as u64),
            count(*without_route as u64),
        );
        let finding = Finding::new(BACKLOG, Severity::Note, found);
        match with_route {
            0 => finding,
            _ => finding.remedy("before a daemon starts, look at `lapsed list --state overdue` and `lapsed cancel` what must not run any more"),
        }
    }
}

/// The sweep's own question, from its beginning.
fn scan(sql: String, limit: u32) -> Query<'static, MySql, MySqlArguments> {
    statement(sql)
        // Overdue by nothing at all, from the beginning.
        .bind(0i64)
        .bind(0i64)
        .bind(0u64)
        .bind(0i64)
        .bind(limit)
}

fn statement(sql: String) -> Query<'static, MySql, MySqlArguments> {
    sqlx::query(AssertSqlSafe(sql))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        Table::new("tasks").expect("a word")
    }

    #[test]
    fn a_table_that_outgrows_the_buffer_pool_is_told_with_its_price() {
        let mib = |n: u64| n * 1024 * 1024;
        let judged = buffer_pool(mib(142), Some(mib(128)));
        assert_eq!(judged.severity, Severity::Warning);
        assert!(
            judged
                .found
                .contains("(142 MiB) do not fit into the buffer pool (128 MiB)")
        );
        assert!(judged.remedy.unwrap().contains("178 MiB"));
        assert_eq!(buffer_pool(mib(128), Some(mib(128))).severity, Severity::Ok);
        assert_eq!(buffer_pool(0, None).severity, Severity::Note);
    }

    #[test]
    fn ids_warn_when_four_fifths_are_used() {
        let judge = |next, column_type| id_room(&table(), next, column_type).severity;
        assert_eq!(judge(3_400_000_000, "int(10) unsigned"), Severity::Ok);
        assert_eq!(judge(3_500_000_000, "int(10) unsigned"), Severity::Warning);
        assert_eq!(judge(1_800_000_000, "INT(11)"), Severity::Warning);
        assert_eq!(judge(60_000, "smallint unsigned"), Severity::Warning);
        assert_eq!(judge(3_500_000_000, "bigint(20) unsigned"), Severity::Ok);
        assert_eq!(judge(3_500_000_000, "bigint"), Severity::Ok);
    }

    #[test]
    fn a_scan_of_the_table_or_of_the_whole_index_is_a_warning() {
        let judge = |uses_index, access: &str| {
            let access = Some(access.to_owned());
            judge_plan(&table(), Some(&AccessPlan { uses_index, access })).severity
        };
        assert_eq!(judge(true, "range"), Severity::Ok);
        assert_eq!(judge(true, "index"), Severity::Warning);
        assert_eq!(judge(false, "ALL"), Severity::Warning);
    }

    #[test]
    fn a_backlog_tells_what_will_run_and_what_will_not() {
        let backlog = Backlog {
            with_route: 9,
            without_route: 3,
            more: false,
            oldest: Duration::from_secs(7200),
        };
        let judged = backlog.judge();
        assert_eq!(
            judged.found,
            "12 tasks are overdue, the oldest for 2 h: 9 have a route here and run as soon as a daemon starts, 3 have none and stay"
        );
        assert!(judged.remedy.is_some());
        let one = Backlog {
            with_route: 1,
            without_route: 0,
            ..backlog
        };
        assert_eq!(
            one.judge().found,
            "1 task is overdue, the oldest for 2 h: 1 has a route here and runs as soon as a daemon starts, 0 have none and stay"
        );
    }

    #[test]
    fn the_missing_rights_are_asked_for_by_name() {
        let refused = |right, by_grants| Refused {
            right,
            why: "no".to_owned(),
            by_grants,
        };
        let who = ("app@10.%".to_owned(), "shop".to_owned());
        let findings = grants(
            &table(),
            &who,
            &[refused("INSERT", true), refused("UPDATE", true)],
            false,
        );
        assert_eq!(findings[0].severity, Severity::Error);
        assert_eq!(
            findings[0].remedy.as_deref(),
            Some("`GRANT INSERT, UPDATE ON shop.tasks TO 'app'@'10.%'`")
        );
        let findings = grants(&table(), &who, &[refused("UPDATE", false)], false);
        assert!(findings[0].found.contains("is refused: no"));
    }

    #[test]
    fn the_right_to_delete_is_asked_for_only_where_something_deletes() {
        let who = ("app@%".to_owned(), "shop".to_owned());
        let refused = [Refused {
            right: DELETE,
            why: "no".to_owned(),
            by_grants: true,
        }];
        let severities = |deletes| -> Vec<Severity> {
            let findings = grants(&table(), &who, &refused, deletes);
            findings.iter().map(|finding| finding.severity).collect()
        };
        assert_eq!(severities(false), [Severity::Ok, Severity::Note]);
        assert_eq!(severities(true), [Severity::Error]);
    }
}
