//! Pause check: active pauses.

use sqlx::{MySqlConnection, Row};

use super::access::PAUSES;
use super::statement;
use lapsed::diagnosis::Finding;
use lapsed::ledger::mysql::queries::Queries;
use lapsed::task::UnixMs;

const COUNT: &str = "SELECT COUNT(*), IF(COUNT(*) = COUNT(`until`), CAST(MAX(`until`) * 1000 AS SIGNED), NULL) \
     FROM `{t}_pauses` WHERE `until` IS NULL OR `until` > UNIX_TIMESTAMP(NOW(3))";

/// The pauses, holds and releases in effect.
pub(super) struct Active {
    number: i64,
    /// When the last of them ends by itself, if all do.
    until: Option<UnixMs>,
}

pub(super) async fn count(conn: &mut MySqlConnection, queries: &Queries) -> sqlx::Result<Active> {
    let question = statement(queries.plain(COUNT));
    let row = question.fetch_one(conn).await?;
    Ok(Active {
        number: row.try_get(0)?,
        until: row.try_get::<Option<i64>, _>(1)?.map(UnixMs),
    })
}

pub(super) fn judge(active: Active) -> Finding {
    let Active { number, until } = active;
    let found = match number {
        0 => return Finding::ok(PAUSES, "nothing is paused"),
        1 => "a pause or hold is active: tasks that it covers stay pending".to_owned(),
        more => {
            format!(
                "{more} pauses, holds and releases are active: tasks that they cover stay pending"
            )
        }
    };
    let found = match until {
        Some(until) => format!("{found} until {until} at the latest"),
        None => found,
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
        let judge = |number, until: Option<i64>| {
            let until = until.map(UnixMs);
            judge(Active { number, until })
        };
        assert_is(&judge(0, None), Severity::Ok, "nothing is paused");
        assert_is(&judge(1, None), Severity::Note, "a pause or hold");
        assert_is(&judge(2, None), Severity::Note, "2 pauses");
        assert_is(
            &judge(2, Some(1_800_000_000_000)),
            Severity::Note,
            "stay pending until 2027-01-15T08:00:00.000Z at the latest",
        );
    }
}
