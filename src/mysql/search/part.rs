//! Ranges of indexes, and places in them.

use std::cmp::Ordering;

use sqlx::mysql::MySqlRow;

use crate::connection::Statement;
use crate::decode;
use crate::queries::Queries;
use crate::scans::END;
use lapsed_core::ledger::{ListCursor, ListFilter};
use lapsed_core::task::UnixMs;

/// Start of a stride, in the order of its index.
#[derive(Clone)]
pub(super) enum Place {
    Row(u64),
    Key(String),
    Archived(String, u64),
    Due(UnixMs, u64),
}

/// A range of an index.
pub(super) enum Part {
    /// All rows, by id.
    All,
    Tagged(String),
    /// Rows with a recurrence.
    Recurring,
    /// Keys from the first text on, before the second.
    Keys(String, String),
    /// As `Keys`, in the archive, where a key may have several rows: by key and id.
    ArchivedKeys(String, String),
    /// Rows of one `status` and `sts`: all, those overdue, or those due before a time.
    Due {
        status: u8,
        deleted: bool,
        overdue: bool,
        before: UnixMs,
    },
    /// Rows of one `status` and `sts` that are due at a time or later, latest first.
    DueDown {
        status: u8,
        deleted: bool,
        from: UnixMs,
    },
}

/// Where a row is in a range.
pub(super) fn place_of(part: &Part, row: &MySqlRow) -> sqlx::Result<Place> {
    Ok(match part {
        Part::All | Part::Tagged(_) | Part::Recurring => Place::Row(decode::id(row)?),
        Part::Keys(..) => Place::Key(decode::text_key(row)?),
        Part::ArchivedKeys(..) => Place::Archived(decode::text_key(row)?, decode::id(row)?),
        Part::Due { .. } | Part::DueDown { .. } => {
            let (due_at, row) = decode::place(row)?;
            Place::Due(due_at, row)
        }
    })
}

impl Part {
    /// Returns the head of a query for whole rows or, for `PLACE`, only for what the index of this range holds.
    pub(super) fn select(&self, queries: &Queries, template: &str) -> String {
        let (index, columns) = match self {
            Self::All => ("PRIMARY", "id"),
            Self::Tagged(_) => ("ix_tag", "id"),
            Self::Recurring => ("ix_recurring", "id"),
            Self::Keys(..) => ("uk_key", "id, `key`"),
            Self::ArchivedKeys(..) => ("ix_key", "id, `key`"),
            Self::Due { .. } | Self::DueDown { .. } => {
                ("ix_due", "id, CAST(due_at * 1000 AS SIGNED) AS due_ms")
            }
        };
        let select = queries.plain(template).replace("{columns}", columns);
        select.replace("{index}", &format!(" FORCE INDEX ({index})"))
    }

    /// Returns the order of its rows.
    pub(super) fn order(&self) -> &'static str {
        match self {
            Self::All | Self::Tagged(_) | Self::Recurring => "id",
            Self::Keys(..) => "`key`",
            Self::ArchivedKeys(..) => "`key`, id",
            Self::Due { .. } => "due_at, id",
            Self::DueDown { .. } => "due_at DESC, id DESC",
        }
    }

    /// Returns the conditions for rows of this range after a place.
    pub(super) fn conditions(&self) -> &'static str {
        match self {
            Self::All => "id > ?",
            Self::Tagged(_) => "tag = ? AND id > ?",
            Self::Recurring => "recurring = 1 AND id > ?",
            Self::Keys(..) => "`key` >= ? AND `key` < ? AND `key` > ?",
            Self::ArchivedKeys(..) => {
                "`key` >= ? AND `key` < ? AND ((`key` = ? AND id > ?) OR `key` > ?)"
            }
            Self::DueDown { .. } => {
                "status = ? AND sts = ? AND due_at >= CAST(? AS SIGNED) / 1000 AND ((due_at = CAST(? AS SIGNED) / 1000 AND id < ?) OR due_at < CAST(? AS SIGNED) / 1000)"
            }
            Self::Due { overdue: false, .. } => {
                "status = ? AND sts = ? AND due_at < CAST(? AS SIGNED) / 1000 AND ((due_at = CAST(? AS SIGNED) / 1000 AND id > ?) OR due_at > CAST(? AS SIGNED) / 1000)"
            }
            Self::Due { overdue: true, .. } => {
                "status = ? AND sts = ? AND due_at < CAST(? AS SIGNED) / 1000 AND due_at <= UNIX_TIMESTAMP(NOW(3)) \
                 AND ((due_at = CAST(? AS SIGNED) / 1000 AND id > ?) OR due_at > CAST(? AS SIGNED) / 1000)"
            }
        }
    }

    /// Returns the condition for rows up to a place.
    pub(super) fn until(&self, end: &Place) -> &'static str {
        match (self, end) {
            (_, Place::Row(_)) => " AND id <= ?",
            (_, Place::Key(_)) => " AND `key` <= ?",
            (_, Place::Archived(..)) => " AND `key` <= ? AND (`key` < ? OR id <= ?)",
            (Self::DueDown { .. }, Place::Due(..)) => {
                " AND due_at >= CAST(? AS SIGNED) / 1000 AND (due_at > CAST(? AS SIGNED) / 1000 OR id >= ?)"
            }
            (_, Place::Due(..)) => {
                " AND due_at <= CAST(? AS SIGNED) / 1000 AND (due_at < CAST(? AS SIGNED) / 1000 OR id <= ?)"
            }
        }
    }

    /// Binds the first values of [`conditions`](Self::conditions). The values of the place follow.
    pub(super) fn bind(&self, statement: Statement<'static>) -> Statement<'static> {
        match self {
            Self::All | Self::Recurring => statement,
            Self::Tagged(tag) => statement.bind(tag.clone()),
            Self::Keys(begin, end) | Self::ArchivedKeys(begin, end) => {
                statement.bind(begin.clone()).bind(end.clone())
            }
            Self::Due {
                status,
                deleted,
                before,
                ..
            }
            | Self::DueDown {
                status,
                deleted,
                from: before,
            } => statement.bind(*status).bind(*deleted).bind(before.0),
        }
    }

    /// Returns where the search begins in this range; `None` if the cursor is after it.
    pub(super) fn begin(&self, filter: &ListFilter) -> Option<Place> {
        Some(match (self, &filter.cursor) {
            (Self::Keys(..), Some(ListCursor::Key(key))) => Place::Key(key.clone()),
            (Self::Keys(..), _) => Place::Key(String::new()),
            (Self::ArchivedKeys(..), Some(ListCursor::Archived(key, row))) => {
                Place::Archived(key.clone(), *row)
            }
            (Self::ArchivedKeys(..), _) => Place::Archived(String::new(), 0),
            (
                Self::Due {
                    status, deleted, ..
                }
                | Self::DueDown {
                    status, deleted, ..
                },
                cursor,
            ) => {
                let first = match (self, filter.due_after) {
                    (Self::DueDown { .. }, _) => {
                        filter.due_before.map_or(END, |before| (before, 0))
                    }
                    (_, Some(after)) => (UnixMs(after.0.saturating_sub(1)), u64::MAX),
                    (_, None) => (UnixMs(0), 0),
                };
                let first = Place::Due(first.0, first.1);
                match cursor {
                    Some(ListCursor::Due {
                        status: at,
                        deleted: of,
                        due_at,
                        row,
                    }) => match (status, deleted).cmp(&(at, of)) {
                        Ordering::Less => return None,
                        Ordering::Equal => Place::Due(*due_at, *row),
                        Ordering::Greater => first,
                    },
                    _ => first,
                }
            }
            (_, Some(ListCursor::Row(row))) => Place::Row(*row),
            _ => Place::Row(0),
        })
    }

    /// Returns a place in it as a cursor.
    pub(super) fn cursor(&self, place: Place) -> ListCursor {
        let (status, deleted) = match self {
            Self::Due {
                status, deleted, ..
            }
            | Self::DueDown {
                status, deleted, ..
            } => (*status, *deleted),
            _ => (0, false),
        };
        match place {
            Place::Row(row) => ListCursor::Row(row),
            Place::Key(key) => ListCursor::Key(key),
            Place::Archived(key, row) => ListCursor::Archived(key, row),
            Place::Due(due_at, row) => ListCursor::Due {
                status,
                deleted,
                due_at,
                row,
            },
        }
    }
}

impl Place {
    /// Binds the last values of [`conditions`](Part::conditions).
    pub(super) fn bind(&self, statement: Statement<'static>) -> Statement<'static> {
        match self {
            Self::Row(row) => statement.bind(*row),
            Self::Key(key) => statement.bind(key.clone()),
            Self::Archived(key, row) => statement.bind(key.clone()).bind(*row).bind(key.clone()),
            Self::Due(due_at, row) => statement.bind(due_at.0).bind(*row).bind(due_at.0),
        }
    }

    /// Binds the values of [`until`](Part::until).
    pub(super) fn bind_end(&self, statement: Statement<'static>) -> Statement<'static> {
        match self {
            Self::Row(row) => statement.bind(*row),
            Self::Key(key) => statement.bind(key.clone()),
            Self::Archived(key, row) => statement.bind(key.clone()).bind(key.clone()).bind(*row),
            Self::Due(due_at, row) => statement.bind(due_at.0).bind(due_at.0).bind(*row),
        }
    }
}
