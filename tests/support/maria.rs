//! Databases for tests, and SQL that they share.

use lapsed_sandbox::PrivateMaria;
use sqlx::{AssertSqlSafe, MySqlExecutor};
use tokio::sync::OnceCell;

/// The server of all tests that neither stop it nor change its settings.
pub async fn server() -> &'static PrivateMaria {
    // A static is never dropped: the server dies with the process, and the next sandbox clears its directory.
    static MARIA: OnceCell<PrivateMaria> = OnceCell::const_new();
    let start = || {
        PrivateMaria::options()
            .set("max-connections", "1000")
            .start()
    };
    MARIA.get_or_try_init(start).await.unwrap()
}

/// A server of all tests that assigns the columns of an `UPDATE` at once, as the SQL standard says.
pub async fn standard_server() -> &'static PrivateMaria {
    static MARIA: OnceCell<PrivateMaria> = OnceCell::const_new();
    let start = || {
        PrivateMaria::options()
            .set("max-connections", "1000")
            .set("sql-mode", "SIMULTANEOUS_ASSIGNMENT")
            .start()
    };
    MARIA.get_or_try_init(start).await.unwrap()
}

/// The URL of a new, empty database on the server of all tests. No other test may use its name.
pub async fn database(name: &str) -> String {
    server().await.create_database(name).await.unwrap()
}

/// A counter of the whole server, such as `Com_insert`: exact only on a server that no other test uses.
pub async fn counter(server: impl MySqlExecutor<'_>, name: &str) -> i64 {
    let status = format!("SHOW GLOBAL STATUS LIKE '{name}'");
    let status = sqlx::query_as(AssertSqlSafe(status)).fetch_one(server);
    let (_, value): (String, String) = status.await.unwrap();
    value.parse().unwrap()
}

/// SQL: a table of the numbers from 1 to `count`, as its column `seq`. MySQL lacks MariaDB's own.
pub fn numbers(count: i64) -> String {
    format!(
        "JSON_TABLE(CONCAT('[0', REPEAT(',0', {count} - 1), ']'), '$[*]' COLUMNS (seq FOR ORDINALITY)) AS numbers"
    )
}
