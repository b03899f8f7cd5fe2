//! Every statement can be prepared and uses the index that is meant for it.

use lapsed::ledger::IfPending;
use lapsed::ledger::mysql::queries::{self, Queries};
use sqlx::mysql::MySqlRow;
use sqlx::{AssertSqlSafe, Executor, MySqlConnection, Row};

use crate::mysql::rig::{overdue, start};

/// What `EXPLAIN` says of a statement, with values put in for its parameters.
async fn explain(connection: &mut MySqlConnection, statement: &str) -> MySqlRow {
    let by_key = statement.contains("`key` IN");
    // MySQL sees that nothing falls due at a moment of 1970 and in future: no plan.
    let value = |n: usize, before: &str| {
        if before.ends_with("end_time = CAST(") {
            "9000000000000".to_owned()
        } else if by_key {
            format!("'Lock@row@{n}'")
        } else {
            (n % 5 + 1).to_string()
        }
    };
    // MySQL 9 would tell in prose.
    let mut explain = "EXPLAIN FORMAT=TRADITIONAL ".to_owned();
    for (n, part) in statement.split('?').enumerate() {
        if n > 0 {
            let value = value(n, &explain);
            explain.push_str(&value);
        }
        explain.push_str(part);
    }
    let explained = sqlx::query(AssertSqlSafe(explain));
    explained.fetch_one(connection).await.unwrap()
}

/// The statement was read from an index alone, and in its order.
#[track_caller]
fn assert_index_alone(explained: &MySqlRow) {
    let extra: String = explained.try_get("Extra").unwrap();
    assert!(extra.contains("Using index"), "{extra}");
    assert!(!extra.contains("filesort"), "{extra}");
}

/// The index a statement uses.
async fn index_of(connection: &mut MySqlConnection, statement: &str) -> Option<String> {
    let row = explain(connection, statement).await;
    row.try_get::<Option<String>, _>("key").unwrap()
}

/// Every statement, with short lists.
fn every_statement(queries: &Queries) -> Vec<String> {
    let statements = [
        queries.create(2, IfPending::Move, false),
        queries.create(2, IfPending::Move, true),
        queries.create(2, IfPending::Keep, false),
        queries.create(2, IfPending::Refuse, false),
        queries.with_keys(queries::LOOKUP, 2),
        queries.with_keys(queries::LOOKUP, 2) + queries::AS_IT_IS_NOW,
        queries.with_keys(queries::ADOPT_LOOK, 2),
        queries.adopt_many(2),
        queries.with_keys(queries::CANCEL, 2),
        queries.record_by_key(),
        queries.freeze(2),
        queries.insert_whole(2),
        queries.whole_page(),
        queries.whole_keys(2),
        queries.plain(queries::UPDATE_WHOLE),
        queries.with_keys(queries::HELD_KEYS, 2),
        queries.with_keys(queries::END_HOLD, 2),
        queries.with_keys(queries::END_OTHER_HOLD, 2),
        queries.with_keys(queries::END_CANCELLED_HOLD, 2),
        queries.with_keys(queries::MARK_ADMITTED, 2),
        queries.with_keys(queries::REVIVE, 2),
        queries.with_keys(queries::UNSTAGE, 2),
        queries.with_keys(queries::GIVE_UP, 2),
        queries.with_keys(queries::DELETE_DOCUMENTS, 2),
        queries.unpaused(queries::UNPAUSED_OLDEST, 2, 4),
        queries.unpaused(queries::UNPAUSED_NEWEST, 1, 1),
    ];
    let of_rows = [
        queries::CLAIM,
        queries::CLAIMED,
        queries::DISOWN,
        queries::RENEW,
        queries::REPORT,
        queries::RENEWED,
        queries::END_LEASES,
        queries::CLAIMABLE,
        queries::COMPLETE,
        queries::RELEASE,
        queries::GIVE_BACK,
        queries::SETTLED,
        queries::UNLOCKED,
        queries::EXISTING,
        queries::UPCOMING,
        queries::UPCOMING_FREE,
        queries::REDRIVE_ROWS,
        queries::DEAD_KEYS,
        queries::DISCARD_ROWS,
        queries::PRUNE_ROWS,
        queries::END_CANCELLED,
        queries::CANCELLABLE,
        queries::CANCEL_ROWS,
        queries::CANCEL_TAGGED,
        queries::CANCELLED_AS,
        queries::NOT_CANCELLED,
    ];
    let plain = [
        queries::CLOCK,
        queries::KEY_CHARSET,
        queries::SNAPSHOT_ISOLATION,
        queries::SCAN_OVERDUE_OLDEST,
        queries::SCAN_OVERDUE_NEWEST,
        queries::SCAN_AHEAD,
        queries::ENTRIES_AHEAD,
        queries::ENTRIES_NEAR,
        queries::NEXT_METHOD,
        queries::SCAN_METHOD,
        queries::PARDON,
        queries::RETRY,
        queries::BURY,
        queries::SNOOZE,
        queries::COMPLETE_WITH,
        queries::FINISHED,
        queries::FROM_END,
        queries::COUNT_BEFORE,
        queries::CANCELLED_RUNS,
        queries::OLDEST_OVERDUE,
        queries::NEXT_OCCURRENCE,
        queries::SERIES,
        queries::SERIES_NEW,
        queries::SERIES_SAME,
        queries::SERIES_OVER,
        queries::MARK_CONFIGURED,
        queries::LET_GO,
        queries::TIDY,
        queries::RESCHEDULE,
        queries::RUN_NOW,
        queries::REDRIVE,
        queries::UNDELETE,
        queries::ADOPT_NEW,
        queries::ADOPT_OVER,
        queries::CANCEL_BY_KEY,
        queries::COMPLETE_IN,
        queries::AGAIN_IN,
        queries::IDS_OF_TAG,
        queries::IDS_OF_KEYS,
        queries::PAUSES,
        queries::PAUSE,
        queries::SET_PAUSE,
        queries::LIFT_PAUSE,
        queries::SET_HOLD,
        queries::RELEASE_SOME,
        queries::RELEASE_ALL,
        queries::COUNT_OVERDUE,
        queries::PAGE_END_OLDEST,
        queries::PAGE_END_NEWEST,
        queries::LEASES,
        queries::STATS_UNFINISHED,
        queries::STATS_DEAD,
        queries::STATS_DONE,
        queries::COUNT_STATUS,
        queries::COUNT_PENDING,
        queries::COUNT_BY_DUE,
        queries::COUNT_DUE,
        queries::TAKE_STARTS,
        queries::NEXT_START,
        queries::NEW_RATE,
        queries::INSERT_DOCUMENT,
        queries::REPLACE_DOCUMENT,
        queries::DELETE_DOCUMENT,
        queries::DOCUMENT,
        queries::DOCUMENTS,
        queries::EXPIRED_DOCUMENTS,
    ];
    let of_rows = of_rows.map(|template| queries.with_rows(template, 4));
    let plain = plain.map(|template| queries.plain(template));
    statements.into_iter().chain(of_rows).chain(plain).collect()
}

#[tokio::test]
async fn every_statement_can_be_prepared() {
    let (_server, ledger, _) = start().await;
    let mut connection = ledger.connection().await.unwrap();
    for statement in every_statement(&Queries::new(ledger.table())) {
        let prepared = connection
            .prepare(sqlx::SqlStr::from_static(statement.clone().leak()))
            .await;
        assert!(prepared.is_ok(), "{statement}: {}", prepared.err().unwrap());
    }
}

/// The assignments of an `UPDATE` in their order: a column, and the columns that its value is made of. Texts in quotes and what
/// was meant to be inserted (`VALUES(..)`) are no columns.
fn assignments(statement: &str) -> Vec<(&str, Vec<&str>)> {
    let Some((_, set)) = statement.split_once(" SET ") else {
        return Vec::new();
    };
    let mut parts = vec![std::ops::Range::<usize>::default()];
    let (mut depth, mut quoted) = (0, false);
    for (at, letter) in set.char_indices() {
        match letter {
            '\'' => quoted = !quoted,
            _ if quoted => {}
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(at + 1..at + 1);
                continue;
            }
            _ if depth == 0 && set[at..].starts_with(" WHERE ") => break,
            _ => {}
        }
        parts.last_mut().unwrap().end = at + 1;
    }
    let assignment = |part: std::ops::Range<usize>| {
        let (column, value) = set[part].split_once('=').expect("an assignment");
        let unquoted = value.split('\'').step_by(2);
        let words = unquoted
            .flat_map(|text| text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')));
        let columns = words.filter(|word| word.starts_with(|c: char| c.is_ascii_lowercase()));
        (column.trim(), columns.collect())
    };
    parts.into_iter().map(assignment).collect()
}

#[test]
fn no_assignment_reads_a_column_that_an_earlier_one_sets() {
    // What they read of the columns that they set is the same before and after: `GIVEN_BACK` says why.
    let excused = ["status", "sts", "finished_at"];
    let queries = Queries::new(&"tb_time_limit_task".parse().unwrap());
    let given_back = [queries::GIVE_BACK, queries::DISOWN].map(|text| queries.with_rows(text, 4));
    let mut seen = 0;
    for statement in every_statement(&queries) {
        let mut set = Vec::new();
        for (column, reads) in assignments(&statement) {
            let read = reads.iter().find(|read| set.contains(*read));
            let is_excused = given_back.contains(&statement) && excused.contains(&column);
            assert!(
                read.is_none() || is_excused,
                "{column} reads {read:?}: {statement}"
            );
            set.push(column);
            seen += 1;
        }
    }
    assert!(seen > 200, "{seen} assignments");
}

#[tokio::test]
async fn statements_use_the_index_that_is_meant_for_them() {
    let (_server, ledger, _) = start().await;
    overdue(&ledger, 2_000).await;
    let queries = Queries::new(ledger.table());
    let mut connection = ledger.connection().await.unwrap();
    connection
        .execute("ANALYZE TABLE tb_time_limit_task")
        .await
        .unwrap();
    let expected = [
        (queries.with_keys(queries::LOOKUP, 8), "uk_key"),
        (queries.with_keys(queries::ADOPT_LOOK, 8), "uk_key"),
        (queries.with_rows(queries::CLAIM, 8), "PRIMARY"),
        (queries.with_rows(queries::CLAIMED, 8), "PRIMARY"),
        (queries.with_rows(queries::RENEW, 8), "PRIMARY"),
        (queries.with_rows(queries::REPORT, 8), "PRIMARY"),
        (queries.with_rows(queries::COMPLETE, 8), "PRIMARY"),
        (queries.with_rows(queries::RELEASE, 8), "PRIMARY"),
        (queries.with_rows(queries::GIVE_BACK, 8), "PRIMARY"),
        (queries.plain(queries::CANCELLED_RUNS), "ix_due"),
        (queries.with_rows(queries::END_CANCELLED, 8), "PRIMARY"),
        (queries.plain(queries::SCAN_OVERDUE_OLDEST), "ix_due"),
        (queries.plain(queries::SCAN_OVERDUE_NEWEST), "ix_due"),
        (queries.plain(queries::SCAN_AHEAD), "ix_due"),
        (queries.plain(queries::ENTRIES_AHEAD), "ix_due"),
        (queries.plain(queries::ENTRIES_NEAR), "ix_due"),
        (queries.plain(queries::NEXT_METHOD), "ix_method"),
        (queries.plain(queries::SCAN_METHOD), "ix_method"),
        (queries.with_rows(queries::UPCOMING, 8), "PRIMARY"),
        (queries.with_rows(queries::UPCOMING_FREE, 8), "PRIMARY"),
        (queries.with_rows(queries::CANCELLABLE, 8), "PRIMARY"),
        (queries.with_rows(queries::CANCEL_ROWS, 8), "PRIMARY"),
        (queries.with_rows(queries::CANCEL_TAGGED, 8), "PRIMARY"),
        (queries.with_rows(queries::CANCELLED_AS, 8), "PRIMARY"),
        (queries.with_rows(queries::NOT_CANCELLED, 8), "PRIMARY"),
        (queries.plain(queries::PAGE_END_OLDEST), "ix_due"),
        (queries.plain(queries::PAGE_END_NEWEST), "ix_due"),
        (queries.plain(queries::LEASES), "ix_due"),
        (queries.with_rows(queries::END_LEASES, 8), "PRIMARY"),
        (queries.with_rows(queries::CLAIMABLE, 8), "PRIMARY"),
        (queries.plain(queries::PARDON), "PRIMARY"),
        (queries.plain(queries::RETRY), "PRIMARY"),
        (queries.plain(queries::NEXT_OCCURRENCE), "PRIMARY"),
        (queries.plain(queries::SERIES_SAME), "PRIMARY"),
        (queries.plain(queries::SERIES_OVER), "PRIMARY"),
        (queries.plain(queries::COMPLETE_IN), "PRIMARY"),
        (queries.plain(queries::ADOPT_OVER), "PRIMARY"),
        (queries.plain(queries::CANCEL_BY_KEY), "PRIMARY"),
        (queries.plain(queries::SNOOZE), "PRIMARY"),
        (queries.plain(queries::COMPLETE_WITH), "PRIMARY"),
        (queries.with_rows(queries::REDRIVE_ROWS, 8), "PRIMARY"),
        (queries.with_rows(queries::DEAD_KEYS, 8), "PRIMARY"),
        (queries.with_rows(queries::DISCARD_ROWS, 8), "PRIMARY"),
        (queries.with_rows(queries::PRUNE_ROWS, 8), "PRIMARY"),
        (queries.plain(queries::FINISHED), "ix_due"),
        (queries.whole_page(), "ix_due"),
        (queries.whole_keys(8), "uk_key"),
        (queries.freeze(8), "PRIMARY"),
        (queries.plain(queries::UPDATE_WHOLE), "PRIMARY"),
        (queries.with_keys(queries::HELD_KEYS, 8), "uk_key"),
        (queries.with_keys(queries::END_HOLD, 8), "uk_key"),
        (queries.with_keys(queries::MARK_ADMITTED, 8), "uk_key"),
        (queries.with_keys(queries::GIVE_UP, 8), "uk_key"),
        (queries.plain(queries::FROM_END), "ix_due"),
        (queries.plain(queries::OLDEST_OVERDUE), "ix_due"),
    ];
    for (statement, index) in expected {
        assert_eq!(
            index_of(&mut connection, &statement).await.as_deref(),
            Some(index),
            "{statement}"
        );
    }
}

/// While few rows are pending, an index that begins with `status` and `sts` looks better to the optimizer than the key. The
/// statement would then lock pending rows of other keys.
#[tokio::test]
async fn statements_of_keys_lock_no_other_pending_row() {
    let (_server, ledger, _) = start().await;
    overdue(&ledger, 200).await;
    let queries = Queries::new(ledger.table());
    let mut connection = ledger.connection().await.unwrap();
    for statement in [
        "UPDATE tb_time_limit_task SET status = 1, finished_at = 5 WHERE id > 3",
        "ANALYZE TABLE tb_time_limit_task",
    ] {
        connection.execute(statement).await.unwrap();
    }
    let of_key = |template: &str| {
        queries
            .plain(template)
            .replacen("`key` = ?", "`key` = 'Lock@row@1'", 1)
    };
    let statements = [
        queries.with_keys(queries::CANCEL, 8),
        of_key(queries::RESCHEDULE),
        of_key(queries::RUN_NOW),
        of_key(queries::REDRIVE),
        of_key(
            "UPDATE `{t}` IGNORE INDEX (ix_due) SET sts = 1 WHERE `key` = ? AND status = 0 AND sts = 0",
        ),
    ];
    for statement in statements {
        let index = index_of(&mut connection, &statement).await;
        assert_eq!(index.as_deref(), Some("uk_key"), "{statement}");
    }
}

#[tokio::test]
async fn a_scan_of_known_tasks_reads_the_index_alone() {
    let (_server, ledger, _) = start().await;
    overdue(&ledger, 2_000).await;
    let queries = Queries::new(ledger.table());
    let mut connection = ledger.connection().await.unwrap();
    let templates = [
        queries::ENTRIES_AHEAD,
        queries::ENTRIES_NEAR,
        queries::PAGE_END_OLDEST,
        queries::PAGE_END_NEWEST,
    ];
    for template in templates {
        let row = explain(&mut connection, &queries.plain(template)).await;
        assert_index_alone(&row);
    }
}

#[tokio::test]
async fn tasks_to_cancel_are_found_in_an_index_alone() {
    let (_server, ledger, _) = start().await;
    overdue(&ledger, 2_000).await;
    let queries = Queries::new(ledger.table());
    let mut connection = ledger.connection().await.unwrap();
    // With the values that are no numbers.
    let of_keys = queries::IDS_OF_KEYS.replacen('?', "'Lock@row@1'", 1);
    for (template, index) in [
        (queries::IDS_OF_TAG.replacen('?', "'a'", 1), "ix_tag"),
        (of_keys.replacen('?', "'Lock@row@2'", 1), "uk_key"),
    ] {
        let row = explain(&mut connection, &queries.plain(&template)).await;
        let found: Option<String> = row.try_get("key").unwrap();
        assert_eq!(found.as_deref(), Some(index));
        assert_index_alone(&row);
    }
}
