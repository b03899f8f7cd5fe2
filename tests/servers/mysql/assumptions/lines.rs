//! The lines, about the table of three rows that each begins with.

/// A name, statements before, the statement, and what it answers: its first column, row by row; `matched N`; `id N`, what
/// `LAST_INSERT_ID` is afterwards; or `error N`. `or` stands between two answers. What begins with `b: ` is another session's.
pub type Line = (
    &'static str,
    &'static [&'static str],
    &'static str,
    &'static str,
);

pub const LINES: &[Line] = &[
    // A generated column in an index: ADR 4.
    (
        "an_index_has_a_virtual_column",
        &["UPDATE t SET retry_at = 200 WHERE id = 2"],
        "SELECT id FROM t FORCE INDEX (ix_due) WHERE status = 0 AND due_at > 100",
        "2",
    ),
    (
        "a_virtual_column_is_added_in_an_instant",
        &[],
        "ALTER TABLE t ADD COLUMN v INT UNSIGNED GENERATED ALWAYS AS (IF(status = 0, CRC32(SUBSTRING_INDEX(k, '@', 2)), NULL)) VIRTUAL, ALGORITHM=INSTANT",
        "matched 0",
    ),
    (
        "an_index_is_added_while_rows_are_written",
        &["ALTER TABLE t ADD COLUMN v INT UNSIGNED GENERATED ALWAYS AS (CRC32(k)) VIRTUAL"],
        "ALTER TABLE t ADD KEY ix_v (v, due_at, id), ALGORITHM=INPLACE, LOCK=NONE",
        "matched 0",
    ),
    (
        "crc32_is_that_of_the_daemon",
        &[],
        "SELECT CRC32(SUBSTRING_INDEX('Order@close@42', '@', 2))",
        "3833842336",
    ),
    // Assignments, in an `UPDATE` and for a duplicate key.
    (
        "assignments_run_from_left_to_right",
        &["UPDATE t SET n = n + 1, retry_at = n WHERE id = 1"],
        "SELECT retry_at FROM t WHERE id = 1",
        "1.000",
    ),
    (
        "assignments_for_a_duplicate_run_from_left_to_right",
        &[
            "INSERT INTO t (k, n) VALUES ('a', 7) ON DUPLICATE KEY UPDATE n = VALUES(n), retry_at = n",
        ],
        "SELECT retry_at FROM t WHERE id = 1",
        "7.000",
    ),
    (
        "a_guard_reads_the_row_before_the_assignments",
        &[],
        "UPDATE t SET status = 1 WHERE id IN (1, 2, 9) AND status = 0",
        "matched 2",
    ),
    // How many rows, and which.
    (
        "a_row_that_stays_the_same_is_counted",
        &[],
        "UPDATE t SET n = 0 WHERE id IN (1, 2)",
        "matched 2",
    ),
    (
        "a_duplicate_that_is_left_alone_changes_nothing",
        &["INSERT INTO t (k, n) VALUES ('a', 7) ON DUPLICATE KEY UPDATE id = id"],
        "SELECT n FROM t",
        "0,0,0",
    ),
    (
        "an_update_answers_a_number",
        &[],
        "UPDATE t SET n = LAST_INSERT_ID(41) WHERE id = 1",
        "id 41",
    ),
    (
        "a_duplicate_answers_a_number",
        &[],
        "INSERT INTO t (k) VALUES ('a') ON DUPLICATE KEY UPDATE n = LAST_INSERT_ID(41)",
        "id 41",
    ),
    (
        "rows_are_named_by_several_columns",
        &[],
        "UPDATE t FORCE INDEX (PRIMARY) SET n = 1 WHERE id IN (1, 2) AND (id, end_time) IN ((1, 100), (2, 7))",
        "matched 1",
    ),
    (
        "a_statement_writes_all_of_its_rows_or_none",
        &["fails: INSERT INTO t (k) VALUES ('x'), ('a')"],
        "SELECT COUNT(*) FROM t",
        "3",
    ),
    (
        "an_id_is_not_given_twice",
        &[
            "INSERT INTO t (k) VALUES ('x')",
            "DELETE FROM t WHERE k = 'x'",
            "INSERT INTO t (k) VALUES ('x')",
        ],
        "SELECT id FROM t WHERE k = 'x'",
        "5",
    ),
    // Errors by number.
    (
        "a_second_row_of_a_key",
        &[],
        "INSERT INTO t (k) VALUES ('a')",
        "error 1062",
    ),
    (
        "an_index_that_is_missing",
        &[],
        "SELECT id FROM t FORCE INDEX (ix_none)",
        "error 1176",
    ),
    // Texts.
    (
        "case_makes_another_key",
        &[],
        "SELECT COUNT(*) FROM t WHERE k = 'A'",
        "0",
    ),
    (
        "a_space_at_the_end_does_not",
        &[],
        "SELECT COUNT(*) FROM t WHERE k = 'a '",
        "1",
    ),
    (
        "null_is_left_out_of_a_list",
        &[],
        "SELECT CONCAT_WS('-', 'a', NULL, 'b')",
        "a-b",
    ),
    (
        "json_keeps_milliseconds",
        &[],
        "SELECT JSON_EXTRACT(JSON_INSERT('{\"cron\":\"* * * * *\"}', '$.moved_from', CAST(1795278006909 AS SIGNED)), '$.moved_from')",
        "1795278006909",
    ),
    (
        "sha2_is_hexadecimal",
        &[],
        "SELECT LEFT(SHA2('abc', 256), 8)",
        "ba7816bf",
    ),
    // Times.
    (
        "milliseconds_are_exact",
        &["UPDATE t SET end_time = CAST(1795278006909 AS SIGNED) / 1000 WHERE id = 1"],
        "SELECT CAST(end_time * 1000 AS SIGNED) FROM t WHERE end_time = CAST(1795278006909 AS SIGNED) / 1000",
        "1795278006909",
    ),
    (
        "the_clock_has_milliseconds",
        &[],
        "SELECT LENGTH(SUBSTRING_INDEX(UNIX_TIMESTAMP(NOW(3)), '.', -1))",
        "3",
    ),
    (
        "the_clock_has_microseconds",
        &[],
        "SELECT LENGTH(SUBSTRING_INDEX(UNIX_TIMESTAMP(NOW(6)), '.', -1))",
        "6",
    ),
    (
        "now_is_when_the_statement_began",
        &["SET @before = NOW(6)", "DO SLEEP(0.01)"],
        "SELECT SLEEP(0.02) + (@before < NOW(6)) + (NOW(6) < SYSDATE(6))",
        "2",
    ),
    (
        "now_moves_within_a_transaction",
        &["BEGIN", "SET @before = NOW(6)", "DO SLEEP(0.01)"],
        "SELECT @before < NOW(6)",
        "1",
    ),
    // Locks: ADR 3.
    (
        "a_locked_row_is_waited_for_as_long_as_the_session_says",
        &["b: BEGIN", "b: UPDATE t SET n = 1 WHERE id = 1"],
        "UPDATE t FORCE INDEX (PRIMARY) SET n = 2 WHERE id IN (1, 2)",
        "error 1205",
    ),
    (
        "a_wait_that_ends_undoes_one_statement",
        &[
            "b: BEGIN",
            "b: UPDATE t SET n = 1 WHERE id = 1",
            "BEGIN",
            "UPDATE t SET n = 5 WHERE id = 2",
            "fails: UPDATE t SET n = 5 WHERE id = 1",
            "COMMIT",
        ],
        "SELECT n FROM t",
        "0,5,0",
    ),
    (
        "a_row_that_does_not_match_is_not_locked",
        &[
            "b: BEGIN",
            "b: UPDATE t FORCE INDEX (PRIMARY) SET n = 1 WHERE id IN (1, 2) AND status = 9",
        ],
        "UPDATE t SET n = 2 WHERE id = 1",
        "matched 1",
    ),
    (
        "the_place_of_a_missing_row_is_not_locked",
        &[
            "b: BEGIN",
            "b: UPDATE t FORCE INDEX (PRIMARY) SET n = 1 WHERE id IN (1, 9)",
        ],
        "INSERT INTO t (id, k) VALUES (9, 'x')",
        "matched 1",
    ),
    (
        "a_missing_key_is_not_locked",
        &[
            "b: BEGIN",
            "b: UPDATE t FORCE INDEX (uk_k) SET n = 1 WHERE k IN ('a', 'x')",
        ],
        "INSERT INTO t (k) VALUES ('x')",
        "matched 1",
    ),
    (
        "a_plain_read_waits_for_no_lock",
        &["b: BEGIN", "b: UPDATE t SET n = 1"],
        "SELECT n FROM t",
        "0,0,0",
    ),
    (
        "locked_rows_are_skipped",
        &["b: BEGIN", "b: UPDATE t SET n = 1 WHERE id = 2"],
        "SELECT id FROM t FORCE INDEX (PRIMARY) WHERE id IN (1, 2, 3) FOR UPDATE SKIP LOCKED",
        "1,3",
    ),
    (
        "a_locked_row_is_an_error_at_once",
        &["b: BEGIN", "b: UPDATE t SET n = 1 WHERE id = 2"],
        "SELECT id FROM t FORCE INDEX (uk_k) WHERE k IN ('a', 'b') FOR UPDATE NOWAIT",
        "error 1205 or error 3572",
    ),
    (
        "a_key_that_another_session_inserts_is_an_error_at_once",
        &["b: BEGIN", "b: INSERT INTO t (k) VALUES ('x')"],
        "SELECT id FROM t FORCE INDEX (uk_k) WHERE k IN ('x') FOR UPDATE NOWAIT",
        "error 1205 or error 3572",
    ),
    (
        "a_read_sees_what_was_committed_before_it",
        &[
            "BEGIN",
            "SELECT n FROM t",
            "b: UPDATE t SET n = 1 WHERE id = 1",
        ],
        "SELECT n FROM t",
        "1,0,0",
    ),
    (
        "a_guard_reads_the_newest_row_in_the_transaction_of_a_handler",
        &[
            "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
            "BEGIN",
            "SELECT n FROM t",
            "b: UPDATE t SET status = 1 WHERE id = 1",
        ],
        "UPDATE t FORCE INDEX (PRIMARY) SET n = 1 WHERE id = 1 AND status = 0",
        "matched 0 or error 1020",
    ),
    // Names that sessions hold, as `lapsed migrate` does.
    (
        "a_name_is_held_by_one_session",
        &["b: SELECT GET_LOCK(REPEAT('x', 64), 0)"],
        "SELECT GET_LOCK(REPEAT('x', 64), 0)",
        "0",
    ),
    (
        "a_name_that_is_given_up_is_free",
        &["b: SELECT GET_LOCK('x', 0)", "b: DO RELEASE_LOCK('x')"],
        "SELECT GET_LOCK('x', 0)",
        "1",
    ),
];
