//! A database server whose defaults are not the usual ones.

use std::time::Duration;

use lapsed::ledger::Ledger;
use lapsed::ledger::mysql::MysqlLedger;
use lapsed::task::State;
use lapsed::timer::ledger_poll::LedgerPoll;
use lapsed::{Config, TaskClient, TaskKey};
use lapsed_sandbox::PrivateMaria;
use sqlx::{Connection as _, MySqlConnection};
use std::sync::Arc;

async fn client(url: &str) -> TaskClient {
    let mut config = Config::default();
    config.ledger.url = url.into();
    let ledger = Arc::new(MysqlLedger::new(&config.ledger).unwrap());
    let timer = LedgerPoll::new(ledger.clock().clone());
    TaskClient::with_parts(ledger, Arc::new(timer))
}

/// What a session writes and nobody commits is gone when it ends.
#[tokio::test]
async fn acknowledged_tasks_are_committed_if_sessions_start_without_autocommit() {
    let server = PrivateMaria::options()
        .set("autocommit", "0")
        .set("transaction-isolation", "SERIALIZABLE")
        .set("sql-mode", "ANSI,TRADITIONAL,NO_BACKSLASH_ESCAPES")
        .start()
        .await
        .unwrap();
    let url = server.create_database("app").await.unwrap();
    let mut other = MySqlConnection::connect(&url).await.unwrap();
    let default: i64 = sqlx::query_scalar("SELECT CAST(@@GLOBAL.autocommit AS SIGNED)")
        .fetch_one(&mut other)
        .await
        .unwrap();
    assert_eq!(default, 0, "the server is as it is meant to be");
    let mut config = Config::default().ledger;
    config.url = url.as_str().into();
    MysqlLedger::new(&config).unwrap().migrate().await.unwrap();

    let (one, another) = (client(&url).await, client(&url).await);
    let hour = Duration::from_secs(3600);
    let key = TaskKey::parse("Order@close@it's \\ \"ü\"").unwrap();
    let made = one.create(key.clone(), hour).await.unwrap();
    let found = another.find(&key).await.unwrap().expect("it is there");
    assert_eq!((found.state, found.due), (State::Pending, made.due()));
    another.cancel(&key).await.unwrap();
    let found = one.find(&key).await.unwrap().expect("it is there");
    assert_eq!(found.state, State::Cancelled);
}
