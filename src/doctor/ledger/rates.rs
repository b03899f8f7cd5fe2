//! Rate limit check: without Redis, daemons share rate limits in a table.

use sqlx::MySqlConnection;

use super::number;
use super::rights::lacking;
use crate::config::Config;
use crate::doctor::Finding;
use crate::doctor::runner::{Runner, Unresponsive};
use crate::ledger::mysql::queries::Queries;

const RATES: &str = "ledger.rates";

/// Test statements. Each matches no row and fails without its privilege.
const TRIALS: [(&str, &str); 3] = [
    ("SELECT", "SELECT route FROM `{t}_rates` WHERE route = ''"),
    (
        "INSERT",
        "INSERT INTO `{t}_rates` (route) SELECT '' FROM DUAL WHERE 1 = 0",
    ),
    (
        "UPDATE",
        "UPDATE `{t}_rates` SET full_at_ns = full_at_ns WHERE route = ''",
    ),
];

pub(super) const NO_SUCH_TABLE: u16 = 1146;

/// Checks the table of rates, which is used only without Redis.
pub(super) async fn examine(
    config: &Config,
    conn: &mut MySqlConnection,
    queries: &Queries,
    runner: &mut Runner,
) -> Result<(), Unresponsive> {
    if config.timer.uses_redis() {
        return Ok(());
    }
    let lack = runner.query(&[RATES], lack(conn, queries)).await?;
    let rated = config
        .routes
        .iter()
        .any(|route| route.limits.rate.is_some());
    runner.add(lack.map(|lack| judge(queries, rated, &lack)));
    Ok(())
}

/// Why daemons cannot share rate limits.
enum Lack {
    Nothing,
    Table,
    Rights(Vec<&'static str>),
}

async fn lack(conn: &mut MySqlConnection, queries: &Queries) -> sqlx::Result<Lack> {
    match lacking(conn, queries, &TRIALS).await {
        Ok(rights) if rights.is_empty() => Ok(Lack::Nothing),
        Ok(rights) => Ok(Lack::Rights(rights)),
        Err(error) if number(&error) == Some(NO_SUCH_TABLE) => Ok(Lack::Table),
        Err(error) => Err(error),
    }
}

/// Judges the state. `rated`: whether a configured route has a rate; the rates of handlers are not known here.
fn judge(queries: &Queries, rated: bool, lack: &Lack) -> Finding {
    let (found, remedy) = match lack {
        Lack::Nothing => {
            return Finding::ok(RATES, "all daemons together keep the `rate` of a route");
        }
        Lack::Table => (
            "the table of rates does not exist".to_owned(),
            "run `lapsed migrate`".to_owned(),
        ),
        Lack::Rights(rights) => (
            format!(
                "this user may not {} on the table of rates",
                rights.join(", ")
            ),
            queries.plain("`GRANT SELECT, INSERT, UPDATE ON {t}_rates TO ...`"),
        ),
    };
    let found = format!("{found}: each daemon applies the `rate` of a route by itself");
    match rated {
        true => Finding::warning(RATES, found).remedy(remedy),
        false => Finding::note(RATES, found).remedy(remedy),
    }
}
