//! Measurements on the configured servers.

use std::process::Stdio;

use lapsed_sandbox::{PrivateMaria, PrivateRedis};
use redis::aio::MultiplexedConnection;
use serde_json::Value;

use super::{document, rows};
use crate::support::program::{lapsed, said};
use crate::support::redis_commands::ask;
use crate::support::wait::until;

#[tokio::test]
async fn configured_servers_are_left_as_they_were() {
    let (redis, maria) = tokio::join!(PrivateRedis::start(), PrivateMaria::start());
    let (redis, maria) = (redis.unwrap(), maria.unwrap());
    let url = maria.create_database("shop").await.unwrap();
    let mut keys = redis.connect(0).await.unwrap();
    let () = ask(&mut keys, &["SET", "Order@close@1", "theirs"]).await;

    let arguments = "bench lateness --pending 100 --rate 20 --warm-up 1s --duration 1s --json";
    let mut command = lapsed();
    command
        .args(arguments.split(' '))
        .env("LAPSED__REDIS__URL", redis.url())
        .env("LAPSED__LEDGER__URL", &url);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap());
    let document = document(output.await.unwrap());
    let row = &rows(&document)[0];
    assert_eq!(
        (&row["samples"], &row["lost"]),
        (&20.into(), &0.into()),
        "{row}"
    );
    assert_eq!(row["redis_rss_mb"], Value::Null, "{row}");

    assert_eq!(all_keys(&mut keys).await, ["Order@close@1"]);
    assert_eq!(tables(&url).await, [""; 0]);
}

async fn all_keys(redis: &mut MultiplexedConnection) -> Vec<String> {
    ask(redis, &["KEYS", "*"]).await
}

async fn tables(url: &str) -> Vec<String> {
    use sqlx::Connection;
    let mut connection = sqlx::MySqlConnection::connect(url).await.unwrap();
    sqlx::query_scalar("SHOW TABLES")
        .fetch_all(&mut connection)
        .await
        .unwrap()
}

#[tokio::test]
async fn an_interrupted_measurement_cleans_up_too() {
    let (redis, maria) = tokio::join!(PrivateRedis::start(), PrivateMaria::start());
    let (redis, maria) = (redis.unwrap(), maria.unwrap());
    let url = maria.create_database("shop").await.unwrap();
    let mut child = lapsed()
        .args(["bench", "idle", "--pending", "1000000", "--duration", "1h"])
        .env("LAPSED__REDIS__URL", redis.url())
        .env("LAPSED__LEDGER__URL", &url)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut keys = redis.connect(0).await.unwrap();
    until("a task is written", async || {
        !all_keys(&mut keys.clone()).await.is_empty()
    })
    .await;
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = tokio::task::spawn_blocking(move || {
        child.wait().unwrap();
        child.wait_with_output().unwrap()
    });
    let (code, _, errors) = said(output.await.unwrap());
    assert_eq!((code, errors.as_str()), (1, "error: interrupted\n"));
    assert_eq!(all_keys(&mut keys).await, [""; 0]);
    assert_eq!(tables(&url).await, [""; 0]);
}
