//! Every SQL statement of the adapter, and why it is written as it is.
//!
//! `{t}` is the table; `{keys}`, `{ids}`, `{fences}` and `{rows}` are lists of bound values. Nothing else is inserted into a
//! text. Lists are padded to a power of two by repeating their last value, so that a handful of prepared statements serves
//! every batch size.
//!
//! Times are bound and read as integer milliseconds. `UNIX_TIMESTAMP(NOW(3))` is the clock that decides. The session's time
//! zone is UTC, which repeats no hour.
//!
//! All updates are single autocommit statements over rows named by id. They have the same effect whether a server assigns from
//! left to right, as MySQL does, or all at once, as the standard says: no assignment reads a column that an earlier one sets.
//! [`CREATE`] does, and says how. MariaDB's `sql_mode=SIMULTANEOUS_ASSIGNMENT` judges it.
//!
//! `changed_at` orders the changes of a task. Every statement that changes an arming on behalf of a caller sets it to the
//! ledger's clock, and adoption compares it with the time at which a key was armed. Claims, renewals and settlements do not
//! change it.
//!
//! Statements name their index or exclude `ix_due`: if few rows are pending, the optimizer would otherwise read all of those,
//! and wait for the locks of rows that the statement does not name.

mod admin;
mod adoption;
mod archive;
mod claims;
mod documents;
mod pauses;
mod producer;
mod rates;
mod scan;
mod settle;
mod transfer;

use lapsed_core::ledger::{IfPending, REDRIVEN_AGO};
use lapsed_core::task::{PAYLOAD_READ_MAX, TableName};

use self::admin::PRUNABLE;
use self::adoption::{ADOPT_ROW, DELETED_BY_LAPSED, ENDED_BY_LAPSED};
use self::archive::{ARCHIVED, ENDED};
use self::pauses::UNPAUSED;
use self::producer::{AFTER, CONTENTS, DISPLACES_KEPT, DISPLACES_REFUSED, MARKED, MOVES, REPLACES};
use self::settle::{ENDS_UNRUN, GIVEN_BACK};
use self::transfer::{HELD, MARK, TOKEN, WHOLE_ROW};

pub use self::admin::{
    CANCELLED_RUNS, COUNT_BEFORE, COUNT_BY_DUE, COUNT_DUE, COUNT_PENDING, COUNT_STATUS, DEAD_KEYS,
    DISCARD_ROWS, END_CANCELLED, FINISHED, FROM_END, OLDEST_OVERDUE, PLACE, PRUNE_ROWS, RECORD,
    RECORD_BRIEF, RECORD_BY_KEY, REDRIVE, REDRIVE_ROWS, RUN_NOW, STATS_DEAD, STATS_DONE,
    STATS_UNFINISHED,
};
pub use self::adoption::{ADOPT_LOOK, ADOPT_MANY, ADOPT_NEW, ADOPT_OVER, CANCEL_BY_KEY, UNDELETE};
pub use self::archive::{
    ARCHIVE_OTHERS, ARCHIVE_ROWS, ARCHIVED_BY_KEY, DELETE_ARCHIVED, LOCK_PRUNABLE,
};
pub use self::claims::{
    AS_IT_IS_NOW, CLAIM, CLAIMABLE, CLAIMED, DISOWN, END_LEASES, EXISTING, LEASES, LOOKUP, PARDON,
    RENEW, RENEWED, REPORT, UNLOCKED,
};
pub use self::documents::{
    DELETE_DOCUMENT, DELETE_DOCUMENTS, DOCUMENT, DOCUMENTS, EXPIRED_DOCUMENTS, INSERT_DOCUMENT,
    REPLACE_DOCUMENT,
};
pub use self::pauses::{
    COUNT_OVERDUE, DELETE_OVER, LIFT_PAUSE, PAGE_END_NEWEST, PAGE_END_OLDEST, PAUSE, PAUSES,
    RELEASE_ALL, RELEASE_SOME, SET_HOLD, SET_PAUSE, SET_UNTIL, UNPAUSED_NEWEST, UNPAUSED_OLDEST,
};
pub use self::producer::{
    CANCEL, CANCEL_ROWS, CANCEL_TAGGED, CANCELLABLE, CANCELLED_AS, CREATE, CREATE_ROW, IDS_OF_KEYS,
    IDS_OF_TAG, MARK_CONFIGURED, NOT_CANCELLED, RESCHEDULE, SERIES, SERIES_NEW, SERIES_OVER,
    SERIES_SAME,
};
pub use self::rates::{NEW_RATE, NEXT_START, TAKE_STARTS};
pub use self::scan::{
    ENTRIES_AHEAD, ENTRIES_NEAR, ENTRIES_OVERDUE_NEWEST, ENTRIES_OVERDUE_OLDEST, NEXT_METHOD,
    SCAN_AHEAD, SCAN_METHOD, SCAN_OVERDUE_NEWEST, SCAN_OVERDUE_OLDEST, UPCOMING, UPCOMING_FREE,
};
pub use self::settle::{
    AGAIN_IN, BURY, COMPLETE, COMPLETE_IN, COMPLETE_WITH, GIVE_BACK, LET_GO, NEXT_OCCURRENCE,
    RELEASE, RETRY, SETTLED, SNOOZE, TIDY,
};
pub use self::transfer::{
    END_CANCELLED_HOLD, END_HOLD, END_OTHER_HOLD, FREEZE, GIVE_UP, HELD_KEYS, INSERT_WHOLE,
    MARK_ADMITTED, REVIVE, UNSTAGE, UPDATE_WHOLE, WHOLE, WHOLE_KEYS, WHOLE_PAGE,
};

/// `{now_ns}`: the ledger's clock in nanoseconds, with the precision that the server has.
const NOW_NS: &str = "CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED) * 1000";

/// The ledger's clock, in microseconds. Every process that follows it runs this every few seconds.
pub const CLOCK: &str = "SELECT CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED)";

/// The longest packet that the server takes from this session, in bytes. Asked of each new connection.
pub const PACKET_MAX: &str = "SELECT CAST(@@max_allowed_packet AS SIGNED)";

/// The character set of the column of keys. Bound: the name of the table.
pub const KEY_CHARSET: &str = "SELECT CAST(CHARACTER_SET_NAME AS CHAR) FROM information_schema.COLUMNS \
     WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ? AND COLUMN_NAME = 'key'";

/// Returns a row if the server knows this setting.
pub const SNAPSHOT_ISOLATION: &str = "SHOW VARIABLES LIKE 'innodb_snapshot_isolation'";

/// The statements of one table.
#[derive(Debug, Clone)]
pub struct Queries {
    table: String,
    /// `{progress}`. Of a run, so no row of the archive has it.
    progress: &'static str,
}

impl Queries {
    /// Builds the statements for `table`, whose name consists of letters, digits and `_`.
    pub fn new(table: &TableName) -> Self {
        Self {
            table: table.to_string(),
            progress: "progress",
        }
    }

    /// Builds the statements that read the archive of `table`, which has the columns that they name.
    pub fn of_archive(table: &TableName) -> Self {
        Self {
            progress: "NULL",
            ..Self::new(&table.archive())
        }
    }

    /// Returns a statement without lists.
    pub fn plain(&self, template: &str) -> String {
        template
            .replace("{prunable}", PRUNABLE)
            .replace("{archived}", ARCHIVED)
            .replace("{ended}", ENDED)
            .replace("{t}", &self.table)
            .replace("{progress}", self.progress)
            .replace("{now_ns}", NOW_NS)
            .replace("{held}", HELD)
            .replace("{given_back}", GIVEN_BACK)
            .replace("{ends_unrun}", ENDS_UNRUN)
            .replace("{deleted_by_lapsed}", DELETED_BY_LAPSED)
            .replace("{ended_by_lapsed}", ENDED_BY_LAPSED)
            .replace("{token}", TOKEN)
            .replace("{payload_max}", &PAYLOAD_READ_MAX.to_string())
            .replace("{redriven_s}", &REDRIVEN_AGO.as_secs().to_string())
    }

    /// Returns [`RECORD`] for one key.
    pub fn record_by_key(&self) -> String {
        self.plain(RECORD).replace("{index}", "") + RECORD_BY_KEY
    }

    /// Returns [`RECORD`] for the latest archived task of a key.
    pub fn archived_by_key(&self) -> String {
        self.plain(RECORD)
            .replace("{index}", " FORCE INDEX (ix_key)")
            + ARCHIVED_BY_KEY
    }

    /// Returns a statement with a list of `n` keys, or of keys and tokens.
    pub fn with_keys(&self, template: &str, n: usize) -> String {
        self.plain(template)
            .replace("{keys}", &list("?", n))
            .replace("{tokens}", &list("?", n))
    }

    /// Returns a statement with lists of `n` ids, owners or fences.
    pub fn with_rows(&self, template: &str, n: usize) -> String {
        self.plain(template)
            .replace("{ids}", &list("?", n))
            .replace("{owners}", &list("(?, ?)", n))
            .replace("{texts}", &list("?", n))
            .replace("{fences}", &list("(?, CAST(? AS SIGNED) / 1000, ?)", n))
    }

    /// Returns [`FREEZE`] for `n` rows.
    pub fn freeze(&self, n: usize) -> String {
        self.with_rows(FREEZE, n).replace("{marks}", &list(MARK, n))
    }

    /// Returns [`INSERT_WHOLE`] for `n` rows.
    pub fn insert_whole(&self, n: usize) -> String {
        self.plain(INSERT_WHOLE)
            .replace("{rows}", &list(WHOLE_ROW, n))
    }

    /// Returns [`WHOLE`] for a page of rows.
    pub fn whole_page(&self) -> String {
        self.plain(WHOLE) + WHOLE_PAGE
    }

    /// Returns [`WHOLE`] for `n` keys.
    pub fn whole_keys(&self, n: usize) -> String {
        self.plain(WHOLE) + &self.with_keys(WHOLE_KEYS, n)
    }

    /// Returns [`ADOPT_MANY`] for `n` rows.
    pub fn adopt_many(&self, n: usize) -> String {
        self.plain(ADOPT_MANY)
            .replace("{rows}", &list(ADOPT_ROW, n))
    }

    /// Returns [`UNPAUSED_OLDEST`] or [`UNPAUSED_NEWEST`] for these numbers of paused and of released names.
    pub fn unpaused(&self, template: &str, names: usize, released: usize) -> String {
        self.plain(template)
            .replace("{unpaused}", UNPAUSED)
            .replace("{names}", &list("?", names))
            .replace("{released}", &list("?", released))
    }

    /// Returns [`CREATE`] for `n` rows, which replace different ones with the same due time or leave them. Unless the policy moves rows,
    /// each row has one more value: its mark.
    pub fn create(&self, n: usize, policy: IfPending, replaces: bool) -> String {
        const NO_MARK: &str = "0";
        const MARK: &str = "CAST(? AS SIGNED) / 1000";
        let (displaces, moves, mark) = match policy {
            IfPending::Move if replaces => (REPLACES, REPLACES, NO_MARK),
            IfPending::Move => (MOVES, MOVES, NO_MARK),
            IfPending::Keep => (DISPLACES_KEPT, MARKED, MARK),
            IfPending::Refuse => (DISPLACES_REFUSED, MARKED, MARK),
        };
        let contents = |payload| CONTENTS.replace("{payload}", payload);
        let after = |payload| AFTER.replace("{payload}", payload);
        self.plain(CREATE)
            .replace("{moves}", moves)
            .replace("{displaces}", displaces)
            .replace("{stored_after}", &after("payload"))
            .replace("{new_after}", &after("VALUES(payload)"))
            .replace("{stored_contents}", &contents("payload"))
            .replace("{new_contents}", &contents("VALUES(payload)"))
            .replace("{held}", HELD)
            .replace("{rows}", &list(CREATE_ROW, n))
            .replace("{mark}", mark)
    }

    /// Returns [`CREATE`] for `n` tasks without its upsert: a duplicate key (1062) means that a row exists.
    pub fn insert(&self, n: usize) -> String {
        let upsert = self.create(n, IfPending::Move, false);
        let insert = upsert.split(ON_DUPLICATE).next();
        insert.unwrap_or_default().to_owned()
    }

    /// Returns [`SERIES`] for `n` keys.
    pub fn rows(&self, n: usize) -> String {
        self.with_keys(&SERIES.replace("= ?", "IN ({keys})"), n)
    }
}

/// Where the upsert begins to be more than an `INSERT`.
const ON_DUPLICATE: &str = " ON DUPLICATE KEY UPDATE";

fn list(item: &str, n: usize) -> String {
    let mut text = String::with_capacity(n * (item.len() + 2));
    for index in 0..n {
        if index > 0 {
            text.push_str(", ");
        }
        text.push_str(item);
    }
    text
}

/// Pads a list to the next power of two by repeating its last item.
pub fn padded<T: Clone>(items: &[T]) -> Vec<T> {
    let mut padded = items.to_vec();
    if let Some(last) = items.last() {
        padded.resize(items.len().next_power_of_two(), last.clone());
    }
    padded
}
