//! The statements of the adapter, and why they are written as they are.
//!
//! `{t}` is the table. A statement reads or writes one row by id or key, or walks along one index; what a row may become is
//! decided by [`Row`](lapsed_core::ledger::row::Row), in the transaction that writes it. Statements that walk name their index:
//! there are no statistics from which a plan could be chosen.
//!
//! A walk returns its rows one by one, so its caller ends it by reading no further.

use lapsed_core::task::TableName;

/// The columns that a row has in the archive, too. What is read of a row are these and [`PROGRESS`], in the order in which
/// [`rows`](super::rows) reads them.
const COLUMNS: &str = "id, key, status, sts, start_time, end_time, owner, daemon, lease_until, run_end, retry_at, attempt, \
     crashes, max_attempts, adopted, finished_at, changed_at, tag, reason, last_error, history, result, recurrence, payload, claimed_at";

/// Of a run, so no row of the archive has it.
const PROGRESS: &str = "progress";

/// `Class@method` of a row, as in the definition of `_method`.
const METHOD: &str = "substr(key, 1, instr(key || '@', '@') + instr(substr(key, instr(key || '@', '@') + 1) || '@', '@') - 1)";

/// The statements of one table.
#[derive(Debug)]
pub(super) struct Queries {
    /// A row by id, with the bytes of its payload and result. Primary key.
    pub row_by_id: String,
    /// The latest row of a key, with the same. `_key`, which is unique outside the archive.
    pub row_by_key: String,
    /// Inserts the row of a new task, unless the key has one. Unique key.
    pub insert: String,
    /// Writes what a claim, a renewal or the end of a lease changes. Primary key.
    ///
    /// `due_at` depends on `run_end` and `retry_at`, so the entry in the index is written again.
    pub save_run: String,
    /// Writes what a completion changes. Primary key.
    pub save_end: String,
    /// Writes everything but id and key. Primary key.
    pub save: String,
    /// Writes everything but id, key, payload and result. Primary key.
    pub save_brief: String,
    /// Deletes a row. Primary key.
    pub delete: String,
    /// Copies a row to the archive. Primary key.
    pub archive: String,
    /// The statements about the rows of the archive. It has none of its own.
    pub of_archive: Option<Box<Self>>,

    /// Places of one `status` and `sts` after a place, up to a due time, earliest first. `_due`.
    pub places_up: String,
    /// Places of one `status` and `sts` before a place and after a due time, latest first. `_due`, backwards.
    pub places_down: String,
    /// As `places_up`, with what a scan reads of a row.
    pub scan_up: String,
    /// As `scan_up`, of the pending rows of one class and method. `_method`.
    pub scan_method: String,
    /// The next class and method of pending rows, of which one entry is read. `_method`.
    pub next_method: String,
    /// As `places_down`, with what a scan reads of a row.
    pub scan_down: String,
    /// What a scan reads of a row. Primary key.
    pub scan_row: String,

    /// Whole rows by id, after an id. Primary key.
    pub list_by_id: String,
    /// Whole rows with a tag by id, after an id. `_tag`.
    pub list_by_tag: String,
    /// Whole rows with a recurrence by id, after an id. `_recurring`, which a file of an earlier version lacks.
    pub list_recurring: String,
    /// Whole rows by key and id: from a key on, before another, after a row of a third. `_key`.
    pub list_by_key: String,
    /// Whole rows of one `status` and `sts` by due time: after a place, before a due time. `_due`.
    pub list_by_due: String,
    /// Whole rows of one `status` and `sts` by due time, latest first: before a place, after a due time. `_due`, backwards.
    pub list_by_due_down: String,

    /// Ids with a tag, before an id, latest first. `_tag`, backwards.
    pub ids_of_tag: String,
    /// Ids and keys of a range of keys, backwards. `_key`.
    pub ids_of_keys: String,

    /// The number of rows of a status, up to a limit. `_due`, which covers it.
    pub count_status: String,
    /// The number of rows of one `status` and `sts` that are due before a time, up to a limit. `_due`.
    pub count_due: String,
    /// The row of one `status` and `sts` that is this many places from the end. `_due`, backwards.
    pub last_due: String,

    /// All pauses, oldest first.
    pub pauses: String,
    /// Inserts a pause.
    pub insert_pause: String,
    /// Deletes a pause of a kind and a scope.
    pub delete_pause: String,
    /// Deletes every hold and release.
    pub delete_holds: String,

    /// A document. Unique key.
    pub document: String,
    /// Documents of a collection since a time and before a place, newest first. `_documents_written`, backwards.
    pub documents: String,
    /// Inserts a document.
    pub insert_document: String,
    /// Replaces the body of a document. Unique key.
    pub replace_document: String,
    /// Deletes a document. Unique key.
    pub delete_document: String,
    /// Deletes documents of a collection before a time, oldest first. `_documents_written`.
    pub delete_documents: String,

    /// Prolongs the leases that end between two times.
    pub prolong_leases: String,

    /// Inserts a row into a table of one row, to find out whether the file takes writes.
    pub insert_probe: String,
    /// Deletes it, in the same transaction. Reads both rows.
    pub delete_probe: String,
}

impl Queries {
    pub fn new(table: &TableName) -> Self {
        Self {
            of_archive: Some(Box::new(Self::of(&table.archive(), "NULL"))),
            ..Self::of(table, PROGRESS)
        }
    }

    fn of(table: &TableName, progress: &str) -> Self {
        let read = format!("{COLUMNS}, {progress}");
        let of = |text: &str| {
            let text = text.replace("{columns}", &read);
            text.replace("{archived}", COLUMNS)
                .replace("{t}", table.as_str())
        };
        let range = "FROM \"{t}\" INDEXED BY \"{t}_due\" WHERE status = ?1 AND sts = ?2 AND";
        // The rest of the due time of the first place, then all others. A comparison of pairs would begin each page at the
        // first row of that due time, and a million rows may share one.
        let walk_up = |select: &str| {
            format!(
                "{select} {range} due_at = ?3 AND id > ?4 AND due_at <= ?5 \
                 UNION ALL {select} {range} due_at > ?3 AND due_at <= ?5 ORDER BY due_at, id"
            )
        };
        let walk_down = |select: &str| {
            format!(
                "{select} {range} due_at = ?3 AND id < ?4 AND due_at > ?5 \
                 UNION ALL {select} {range} due_at < ?3 AND due_at > ?5 ORDER BY due_at DESC, id DESC"
            )
        };
        let of_method = format!(
            "FROM \"{{t}}\" INDEXED BY \"{{t}}_method\" WHERE status = 0 AND sts = 0 AND {METHOD}"
        );
        let save = "UPDATE \"{t}\" SET status = ?2, sts = ?3, start_time = ?4, end_time = ?5, owner = ?6, daemon = ?7, lease_until = ?8, \
             run_end = ?9, retry_at = ?10, attempt = ?11, crashes = ?12, max_attempts = ?13, adopted = ?14, finished_at = ?15, \
             changed_at = ?16, tag = ?17, reason = ?18, last_error = ?19, history = ?20, recurrence = ?21, claimed_at = ?22";
        // Lengths are in the header of a row: no page of the texts is read for them.
        let one = "SELECT {columns}, ifnull(octet_length(payload), 0) + ifnull(octet_length(result), 0) FROM \"{t}\"";
        let places = "SELECT id, due_at";
        let scanned = "SELECT id, due_at, key, end_time, lease_until, owner, daemon, status, sts, run_end, retry_at";
        Self {
            row_by_id: of(&format!("{one} WHERE id = ?1")),
            row_by_key: of(&format!("{one} WHERE key = ?1 ORDER BY id DESC LIMIT 1")),
            insert: of(
                "INSERT INTO \"{t}\" (key, start_time, end_time, run_end, attempt, max_attempts, adopted, changed_at, tag, recurrence, payload) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11) ON CONFLICT (key) DO NOTHING",
            ),
            save_run: of(
                "UPDATE \"{t}\" SET owner = ?2, daemon = ?3, lease_until = ?4, run_end = ?5, retry_at = ?6, attempt = ?7, crashes = ?8, progress = ?9, claimed_at = ?10 WHERE id = ?1",
            ),
            save_end: of(
                "UPDATE \"{t}\" SET status = ?2, lease_until = ?3, finished_at = ?4, last_error = ?5, result = ?6 WHERE id = ?1",
            ),
            save: of(&format!(
                "{save}, result = ?23, payload = ?24 WHERE id = ?1"
            )),
            save_brief: of(&format!("{save} WHERE id = ?1")),
            delete: of("DELETE FROM \"{t}\" WHERE id = ?1"),
            archive: of(
                "INSERT OR REPLACE INTO \"{t}_archive\" ({archived}) SELECT {archived} FROM \"{t}\" WHERE id = ?1",
            ),
            of_archive: None,
            places_up: of(&walk_up(places)),
            places_down: of(&walk_down(places)),
            scan_up: of(&walk_up(scanned)),
            scan_down: of(&walk_down(scanned)),
            scan_method: of(&format!(
                "{scanned} {of_method} = ?1 AND due_at = ?2 AND id > ?3 AND ?2 <= ?4 \
                 UNION ALL {scanned} {of_method} = ?1 AND due_at > ?2 AND due_at <= ?4 ORDER BY due_at, id"
            )),
            next_method: of(&format!(
                "SELECT {METHOD} {of_method} > ?1 ORDER BY {METHOD} LIMIT 1"
            )),
            scan_row: of(&format!("{scanned} FROM \"{{t}}\" WHERE id = ?1")),
            list_by_id: of("SELECT {columns} FROM \"{t}\" WHERE id > ?1 ORDER BY id"),
            list_by_tag: of(
                "SELECT {columns} FROM \"{t}\" INDEXED BY \"{t}_tag\" WHERE tag = ?1 AND id > ?2 ORDER BY id",
            ),
            list_recurring: of(
                "SELECT {columns} FROM \"{t}\" INDEXED BY \"{t}_recurring\" WHERE recurrence IS NOT NULL AND id > ?1 ORDER BY id",
            ),
            list_by_key: of(
                "SELECT {columns} FROM \"{t}\" INDEXED BY \"{t}_key\" WHERE key >= ?1 AND key < ?2 AND key >= ?3 AND (key > ?3 OR id > ?4) \
                 ORDER BY key, id",
            ),
            list_by_due: of(&walk_up("SELECT {columns}, due_at")),
            list_by_due_down: of(&walk_down("SELECT {columns}, due_at")),
            ids_of_tag: of(
                "SELECT id FROM \"{t}\" INDEXED BY \"{t}_tag\" WHERE tag = ?1 AND id < ?2 ORDER BY id DESC LIMIT ?3",
            ),
            ids_of_keys: of(
                "SELECT id, key FROM \"{t}\" INDEXED BY \"{t}_key\" WHERE key >= ?1 AND key < ?2 ORDER BY key DESC LIMIT ?3",
            ),
            count_status: of(
                "SELECT COUNT(*) FROM (SELECT 1 FROM \"{t}\" INDEXED BY \"{t}_due\" WHERE status = ?1 LIMIT ?2)",
            ),
            count_due: of(
                "SELECT COUNT(*) FROM (SELECT 1 FROM \"{t}\" INDEXED BY \"{t}_due\" WHERE status = ?1 AND sts = ?2 AND due_at < ?3 LIMIT ?4)",
            ),
            last_due: of(
                "SELECT id, due_at FROM \"{t}\" INDEXED BY \"{t}_due\" WHERE status = ?1 AND sts = ?2 ORDER BY due_at DESC, id DESC LIMIT 1 OFFSET ?3",
            ),
            pauses: of(
                "SELECT kind, class, method, since, due_before, until, set_by, reason FROM \"{t}_pauses\" ORDER BY since, rowid",
            ),
            insert_pause: of(
                "INSERT INTO \"{t}_pauses\" (kind, class, method, since, due_before, until, set_by, reason) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            ),
            delete_pause: of(
                "DELETE FROM \"{t}_pauses\" WHERE kind = ?1 AND class = ?2 AND method = ?3",
            ),
            delete_holds: of("DELETE FROM \"{t}_pauses\" WHERE kind <> 'pause'"),
            document: of(
                "SELECT name, written_at, body FROM \"{t}_documents\" WHERE collection = ?1 AND name = ?2",
            ),
            documents: of(
                "SELECT name, written_at, body FROM \"{t}_documents\" INDEXED BY \"{t}_documents_written\" \
                 WHERE collection = ?1 AND written_at >= ?2 AND (written_at, name) < (?3, ?4) \
                 ORDER BY written_at DESC, name DESC LIMIT ?5",
            ),
            insert_document: of(
                "INSERT INTO \"{t}_documents\" (collection, name, written_at, body) VALUES (?1, ?2, ?3, ?4)",
            ),
            replace_document: of(
                "UPDATE \"{t}_documents\" SET body = ?3 WHERE collection = ?1 AND name = ?2",
            ),
            delete_document: of(
                "DELETE FROM \"{t}_documents\" WHERE collection = ?1 AND name = ?2",
            ),
            delete_documents: of(
                "DELETE FROM \"{t}_documents\" WHERE rowid IN (SELECT rowid FROM \"{t}_documents\" \
                   INDEXED BY \"{t}_documents_written\" WHERE collection = ?1 AND written_at < ?2 ORDER BY written_at, name LIMIT ?3)",
            ),
            prolong_leases: of(
                "UPDATE \"{t}\" SET lease_until = lease_until + ?1 WHERE status = 0 AND lease_until >= ?2 AND lease_until < ?3",
            ),
            insert_probe: of("INSERT INTO \"{t}_format\" (version, identity) VALUES (0, 'probe')"),
            delete_probe: of("DELETE FROM \"{t}_format\" WHERE identity = 'probe'"),
        }
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;
    use crate::schema;

    /// What SQLite says about how it runs a statement.
    fn plan(connection: &Connection, text: &str) -> String {
        let mut explain = connection
            .prepare(&format!("EXPLAIN QUERY PLAN {text}"))
            .unwrap();
        let details = explain.raw_query().mapped(|row| row.get::<_, String>(3));
        details
            .collect::<rusqlite::Result<Vec<_>>>()
            .unwrap()
            .join("; ")
    }

    #[test]
    fn each_statement_uses_its_index_and_sorts_nothing() {
        let table = TableName::new("t").unwrap();
        let connection = Connection::open_in_memory().unwrap();
        for statement in schema::statements(&table) {
            connection.execute(&statement, []).unwrap();
        }
        let queries = Queries::new(&table);
        let archive = queries.of_archive.as_deref().unwrap();
        let primary = "USING INTEGER PRIMARY KEY (rowid";
        let up = "t_due (status=? AND sts=? AND due_at=? AND rowid>?)";
        let down = "t_due (status=? AND sts=? AND due_at=? AND rowid<?)";
        let rest = "t_due (status=? AND sts=? AND due_at>? AND due_at<?)";
        for (statement, expected) in [
            (&queries.row_by_id, [primary, ""]),
            (&queries.row_by_key, ["INDEX t_key (key=?)", ""]),
            (&queries.save_run, [primary, ""]),
            (&queries.save_end, [primary, ""]),
            (&queries.save, [primary, ""]),
            (&queries.save_brief, [primary, ""]),
            (&queries.delete, [primary, ""]),
            (&queries.archive, [primary, ""]),
            (&archive.row_by_key, ["INDEX t_archive_key (key=?)", ""]),
            (&archive.row_by_id, [primary, ""]),
            (&archive.delete, [primary, ""]),
            (&archive.list_by_id, [primary, ""]),
            (
                &archive.list_by_tag,
                ["t_archive_tag (tag=? AND rowid>?)", ""],
            ),
            (
                &archive.list_by_key,
                ["t_archive_key (key>? AND key<?)", ""],
            ),
            (
                &archive.list_by_due,
                [
                    "t_archive_due (status=? AND sts=? AND due_at=? AND rowid>?)",
                    "t_archive_due (status=? AND sts=? AND due_at>? AND due_at<?)",
                ],
            ),
            (&queries.scan_row, [primary, ""]),
            (&queries.list_by_id, [primary, ""]),
            (&queries.places_up, [up, rest]),
            (&queries.places_down, [down, rest]),
            (&queries.scan_up, [up, rest]),
            (&queries.scan_down, [down, rest]),
            (&queries.list_by_due, [up, rest]),
            (&queries.list_by_due_down, [down, rest]),
            (
                &queries.scan_method,
                [
                    "t_method (<expr>=? AND due_at=? AND rowid>?)",
                    "t_method (<expr>=? AND due_at>? AND due_at<?)",
                ],
            ),
            (&queries.next_method, ["INDEX t_method (<expr>>?)", ""]),
            (&queries.list_by_tag, ["t_tag (tag=? AND rowid>?)", ""]),
            (&queries.list_recurring, ["t_recurring (id>?)", ""]),
            (&queries.list_by_key, ["t_key (key>? AND key<?)", ""]),
            (&queries.ids_of_tag, ["t_tag (tag=? AND rowid<?)", ""]),
            (
                &queries.ids_of_keys,
                ["COVERING INDEX t_key (key>? AND key<?)", ""],
            ),
            (&queries.last_due, ["t_due (status=? AND sts=?)", ""]),
            (
                &queries.count_status,
                ["COVERING INDEX t_due (status=?)", ""],
            ),
            (
                &queries.count_due,
                ["t_due (status=? AND sts=? AND due_at<?)", ""],
            ),
            (
                &queries.document,
                [
                    "sqlite_autoindex_t_documents_1 (collection=? AND name=?)",
                    "",
                ],
            ),
            (
                &queries.documents,
                [
                    "t_documents_written (collection=? AND written_at>? AND (written_at,name)<(?,?))",
                    "",
                ],
            ),
            (
                &queries.delete_documents,
                [
                    "t_documents_written (collection=? AND written_at<?)",
                    primary,
                ],
            ),
        ] {
            let plan = plan(&connection, statement);
            assert!(!plan.contains("TEMP B-TREE"), "{statement}: {plan}");
            for part in expected {
                assert!(plan.contains(part), "{statement}: {plan}");
            }
        }
    }
}
