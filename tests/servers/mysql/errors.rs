//! What goes wrong with the server, and what is said about it.

use std::time::Duration;

use lapsed::Config;
use lapsed::ledger::mysql::MysqlLedger;
use lapsed::ledger::{Admin, Ledger};
use sqlx::Executor;
use tokio::time::Instant;

use crate::mysql::rig::{connect, start};

#[tokio::test]
async fn a_server_that_falls_silent_costs_no_connection_for_ever() {
    let (server, ledger, url) = start().await;
    let mut config = Config::default().ledger;
    config.url = url.as_str().into();
    config.max_connections = 2;
    config.statement_timeout = Duration::from_millis(200);
    let hasty = MysqlLedger::new(&config).unwrap();
    hasty.sync_clock().await.unwrap();
    server.stop_process().unwrap();
    for _ in 0..3 {
        let error = hasty.sync_clock().await.unwrap_err();
        assert!(error.is_transient(), "{error}");
    }
    server.continue_process().unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while let Err(error) = hasty.sync_clock().await {
        assert!(Instant::now() < deadline, "{error}");
    }
    drop(ledger);
}

#[tokio::test]
async fn errors_say_what_to_do() {
    let (server, ledger, url) = start().await;
    let refused = |url: &str| {
        let ledger = connect(url);
        async move { ledger.check().await.unwrap_err().to_string() }
    };
    let wrong = url.replace("root@", "nobody:wrong@");
    assert!(
        refused(&wrong)
            .await
            .contains("check user and password in `ledger.url`"),
        "{}",
        refused(&wrong).await
    );
    let no_database = server.url("nowhere");
    assert!(
        refused(&no_database).await.contains("create the database"),
        "{}",
        refused(&no_database).await
    );
    let empty = server.create_database("fresh").await.unwrap();
    assert!(
        refused(&empty).await.contains("run `lapsed migrate`"),
        "{}",
        refused(&empty).await
    );

    let mut connection = ledger.connection().await.unwrap();
    connection
        .execute("CREATE USER reader@'%' IDENTIFIED BY 'pw'")
        .await
        .unwrap();
    connection
        .execute("GRANT SELECT ON app.* TO reader@'%'")
        .await
        .unwrap();
    let reader = url.replace("root@", "reader:pw@");
    let error = refused(&reader).await;
    assert!(
        error.contains(" command denied to user 'reader'@")
            && error.contains("; grant UPDATE on ")
            && error.ends_with("`tb_time_limit_task` to this user"),
        "{error}"
    );
    connection
        .execute("GRANT SELECT, INSERT, UPDATE ON app.* TO reader@'%'")
        .await
        .unwrap();
    let error = connect(&reader).discard_rows(&[1]).await.unwrap_err();
    let error = error.to_string();
    assert!(
        error.contains("; grant DELETE on ")
            && error.ends_with("`tb_time_limit_task` to this user"),
        "{error}"
    );
    let nobody_there = "mysql://root@127.0.0.1:1/app";
    assert!(
        refused(nobody_there)
            .await
            .contains("ledger did not answer"),
        "{}",
        refused(nobody_there).await
    );
}
