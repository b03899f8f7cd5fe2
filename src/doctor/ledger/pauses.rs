//! Pause check: active pauses.

use sqlx::{MySqlConnection, Row};

use super::access::PAUSES;
use super::statement;
use lapsed::diagnosis::Finding;
use lapsed::ledger::mysql::queries::Queries;

const COUNT: &str = "SELECT COUNT(*) FROM `{t}_pauses`";

/// Number of pauses, holds and releases.
pub(super) async fn count(conn: &mut MySqlConnection, queries: &Queries) -> sqlx::Result<i64> {
    let question = statement(queries.plain(COUNT));
    question.fetch_one(conn).await?.try_get(0)
}

pub(super) fn judge(active: i64) -> Finding {
    let found = match active {
        0 => return Finding::ok(PAUSES, "nothing is paused"),
        1 => "a pause or hold is active: tasks that it covers stay pending".to_owned(),
        more => {
            format!(
                "{more} pauses, holds and releases are active: tasks that they cover stay pending"
            )
        }
    };
    Finding::note(PAUSES, found).remedy("see `lapsed pauses`")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assertions::assert_is;
    use lapsed::diagnosis::Severity;

    #[test]
    fn active_pauses_are_noted() {
        assert_is(&judge(0), Severity::Ok, "nothing is paused");
        assert_is(&judge(1), Severity::Note, "a pause or hold");
        assert_is(&judge(2), Severity::Note, "2 pauses");
    }
}
