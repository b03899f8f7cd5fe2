//! Statements of documents.

/// `insert_document`. First writer wins; duplicate key (1062) means that there is one of this name.
pub const INSERT_DOCUMENT: &str = "INSERT INTO `{t}_documents` (collection, name, written_at, body) \
     VALUES (?, ?, UNIX_TIMESTAMP(NOW(3)), ?)";

/// `replace_document`. Primary key.
pub const REPLACE_DOCUMENT: &str =
    "UPDATE `{t}_documents` SET body = ? WHERE collection = ? AND name = ?";

/// `delete_document`. Primary key.
pub const DELETE_DOCUMENT: &str = "DELETE FROM `{t}_documents` WHERE collection = ? AND name = ?";

/// `find_document`, and the document that an insert found. Primary key.
pub const DOCUMENT: &str = "SELECT name, CAST(written_at * 1000 AS SIGNED) AS written_ms, body \
     FROM `{t}_documents` WHERE collection = ? AND name = ?";

/// `documents`, newest first. Range on `ix_written`, backwards.
pub const DOCUMENTS: &str = "SELECT name, CAST(written_at * 1000 AS SIGNED) AS written_ms, body \
     FROM `{t}_documents` FORCE INDEX (ix_written) \
     WHERE collection = ? AND written_at >= CAST(? AS SIGNED) / 1000 AND written_at <= CAST(? AS SIGNED) / 1000 \
       AND (written_at < CAST(? AS SIGNED) / 1000 OR name < ?) \
     ORDER BY collection DESC, written_at DESC, name DESC LIMIT ?";

/// `delete_documents`: the names of the oldest. Range on `ix_written`, which covers it.
///
/// Not one `DELETE` with an order and a limit: where much of a collection has expired, both servers would read and lock all of
/// it, and sort it.
pub const EXPIRED_DOCUMENTS: &str = "SELECT name FROM `{t}_documents` FORCE INDEX (ix_written) \
     WHERE collection = ? AND written_at < CAST(? AS SIGNED) / 1000 ORDER BY written_at, name LIMIT ?";

/// `delete_documents`: these, unless they were deleted and inserted again. Primary key: a `DELETE` cannot name its index, and
/// `written_at + 0` matches no index.
pub const DELETE_DOCUMENTS: &str = "DELETE FROM `{t}_documents` \
     WHERE collection = ? AND name IN ({keys}) AND written_at + 0 < CAST(? AS SIGNED) / 1000";
