//! A ledger on a MariaDB of its own, with tasks that are overdue.

use std::time::Duration;

use lapsed::Config;
use lapsed::ledger::mysql::MysqlLedger;
use lapsed::ledger::{Claimant, NewTask, Producer};
use lapsed::task::{Arming, TaskKey, UnixMs};
use lapsed_sandbox::PrivateMaria;
use sqlx::{Connection, MySqlConnection};

/// A server, the ledger in it, and its URL for other sessions.
pub async fn start() -> (PrivateMaria, MysqlLedger, String) {
    let server = PrivateMaria::options()
        .durable(false)
        .start()
        .await
        .unwrap();
    let url = server.create_database("app").await.unwrap();
    let ledger = connect(&url);
    ledger.migrate().await.unwrap();
    (server, ledger, url)
}

/// Another ledger on the same table.
pub fn connect(url: &str) -> MysqlLedger {
    let mut config = Config::default().ledger;
    config.url = url.into();
    MysqlLedger::new(&config).unwrap()
}

/// As many tasks of `Lock@row` as asked for, all overdue.
pub async fn overdue(ledger: &MysqlLedger, count: i64) -> Vec<Arming> {
    let now = ledger.now().await.unwrap();
    let task = |n: i64| {
        NewTask::new(
            TaskKey::build("Lock", "row", [n.to_string()]).unwrap(),
            UnixMs(now.0 - 1_000 + n),
        )
    };
    let created = ledger
        .create(&(0..count).map(task).collect::<Vec<_>>())
        .await
        .unwrap();
    created.iter().map(|created| created.arming).collect()
}

/// A daemon, with leases of 30 s.
pub fn claimant() -> Claimant {
    Claimant {
        daemon: "test".into(),
        lease: Duration::from_secs(30),
    }
}

/// Somebody's open transaction on a row; until it ends no statement of others gets by.
pub async fn lock(connection: &mut MySqlConnection, row: u64) -> sqlx::MySqlTransaction<'_> {
    let mut holding = connection.begin().await.unwrap();
    sqlx::query("SELECT id FROM tb_time_limit_task WHERE id = ? FOR UPDATE")
        .bind(row)
        .fetch_one(&mut *holding)
        .await
        .unwrap();
    holding
}
