//! The private servers that all other server tests stand on.

use std::error::Error;
use std::process::Stdio;
use std::time::Duration;

use lapsed_sandbox::{PrivateMaria, PrivateRedis, SandboxError};
use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use sqlx::{AssertSqlSafe, Connection, MySqlConnection};
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::support::wait::DEADLINE;

type Result<T = (), E = Box<dyn Error>> = std::result::Result<T, E>;

async fn redis_at(redis: &PrivateRedis) -> Result<MultiplexedConnection> {
    let client = redis::Client::open(redis.url())?;
    Ok(client.get_multiplexed_async_connection().await?)
}

async fn count(url: &str) -> Result<i64> {
    let mut maria = MySqlConnection::connect(url).await?;
    Ok(sqlx::query_scalar("SELECT COUNT(*) FROM t")
        .fetch_one(&mut maria)
        .await?)
}

async fn execute(url: &str, statement: &str) -> Result {
    let mut maria = MySqlConnection::connect(url).await?;
    sqlx::raw_sql(AssertSqlSafe(statement.to_owned()))
        .execute(&mut maria)
        .await?;
    Ok(())
}

#[tokio::test]
async fn a_private_redis_sends_no_notifications_unless_asked_to() -> Result {
    let plain = PrivateRedis::start().await?;
    let asked = PrivateRedis::options()
        .set("notify-keyspace-events", "Ex")
        .start()
        .await?;
    for (server, flags) in [(&plain, ""), (&asked, "xE")] {
        let found: Vec<String> = redis::cmd("CONFIG")
            .arg(&["GET", "notify-keyspace-events"])
            .query_async(&mut redis_at(server).await?)
            .await?;
        assert_eq!(found, ["notify-keyspace-events", flags]);
    }
    Ok(())
}

#[tokio::test]
async fn a_restarted_redis_is_empty_and_keeps_its_url() -> Result {
    let mut redis = PrivateRedis::options()
        .set("appendonly", "yes")
        .start()
        .await?;
    let url = redis.url();
    let () = redis_at(&redis).await?.set("k", "v").await?;

    redis.restart().await?;

    assert_eq!(redis.url(), url);
    let keys: u64 = redis::cmd("DBSIZE")
        .query_async(&mut redis_at(&redis).await?)
        .await?;
    assert_eq!(keys, 0);
    Ok(())
}

#[tokio::test]
async fn a_killed_redis_refuses_connections_until_it_is_started_again() -> Result {
    let mut redis = PrivateRedis::start().await?;
    redis.kill();
    assert!(redis_at(&redis).await.is_err());
    assert!(matches!(
        redis.stop_process(),
        Err(SandboxError::NotRunning { .. })
    ));

    redis.start_again().await?;
    let () = redis_at(&redis).await?.set("k", "v").await?;
    Ok(())
}

#[tokio::test]
async fn a_stopped_redis_is_silent_until_it_continues() -> Result {
    let redis = PrivateRedis::start().await?;
    let mut connection = redis_at(&redis).await?;
    redis.stop_process()?;
    let ping = redis::cmd("PING");
    let mut answer = Box::pin(ping.query_async::<String>(&mut connection));
    let silence = tokio::time::timeout(Duration::from_millis(100), &mut answer).await;
    assert!(silence.is_err());

    redis.continue_process()?;
    assert_eq!(answer.await?, "PONG");
    Ok(())
}

#[tokio::test]
async fn a_restarted_maria_keeps_its_data_and_url() -> Result {
    let mut maria = PrivateMaria::options()
        .durable(true)
        .buffer_pool("32M")
        .start()
        .await?;
    let url = maria.create_database("lapsed").await?;
    execute(
        &url,
        "CREATE TABLE t (id INT PRIMARY KEY); INSERT INTO t VALUES (1)",
    )
    .await?;

    maria.kill();
    assert!(MySqlConnection::connect(&url).await.is_err());
    maria.restart().await?;
    assert_eq!(count(&url).await?, 1);

    maria.shutdown().await?;
    assert!(MySqlConnection::connect(&url).await.is_err());
    maria.restart().await?;
    assert_eq!(maria.url("lapsed"), url);
    assert_eq!(count(&url).await?, 1);
    assert_eq!(count(&maria.socket_url("lapsed")).await?, 1);
    Ok(())
}

#[tokio::test]
async fn a_stopped_maria_is_silent_until_it_continues() -> Result {
    let maria = PrivateMaria::start().await?;
    let mut connection = MySqlConnection::connect(&maria.url("")).await?;
    maria.stop_process()?;
    maria.stop_process()?;
    let mut answer = Box::pin(connection.ping());
    let silence = tokio::time::timeout(Duration::from_millis(100), &mut answer).await;
    assert!(silence.is_err());

    maria.continue_process()?;
    answer.await?;
    Ok(())
}

#[tokio::test]
async fn parallel_servers_are_independent() -> Result {
    let (redis, other_redis) = tokio::try_join!(PrivateRedis::start(), PrivateRedis::start())?;
    let () = redis_at(&redis).await?.set("k", "v").await?;
    assert!(!redis_at(&other_redis).await?.exists::<_, bool>("k").await?);

    let (maria, other_maria) = tokio::try_join!(PrivateMaria::start(), PrivateMaria::start())?;
    maria.create_database("lapsed").await?;
    other_maria.create_database("lapsed").await?;
    assert_ne!(maria.port(), other_maria.port());
    Ok(())
}

#[tokio::test]
async fn a_server_outlives_the_runtime_that_started_it() -> Result {
    let redis = std::thread::spawn(|| {
        let runtime = tokio::runtime::Runtime::new()?;
        let started = runtime.block_on(runtime.spawn(PrivateRedis::start()))?;
        started.map_err(std::io::Error::other)
    })
    .join()
    .expect("the thread does not panic")?;
    redis_at(&redis).await?;
    Ok(())
}

#[tokio::test]
async fn a_server_dies_with_a_killed_process() -> Result {
    let mut holder = tokio::process::Command::new(std::env::current_exe()?)
        .args([
            "--exact",
            "sandbox::hold_a_server",
            "--ignored",
            "--nocapture",
        ])
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let out = holder.stdout.take().expect("it is piped");
    let mut lines = BufReader::new(out).lines();
    let url = loop {
        let line = lines.next_line().await?.ok_or("no URL was printed")?;
        if let Some((_, url)) = line.split_once(URL_MARK) {
            break url.to_owned();
        }
    };
    let client = redis::Client::open(url)?;
    client.get_multiplexed_async_connection().await?;

    holder.kill().await?;

    let gone = async {
        while client.get_multiplexed_async_connection().await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(DEADLINE, gone).await?;
    Ok(())
}

const URL_MARK: &str = "private redis at ";

#[tokio::test]
#[ignore = "the process that the test above kills"]
async fn hold_a_server() -> Result {
    let redis = PrivateRedis::start().await?;
    println!("{URL_MARK}{}", redis.url());
    std::future::pending().await
}

#[tokio::test]
async fn a_missing_server_is_named_with_its_remedy() {
    let redis = PrivateRedis::options().program("redis-servr").start().await;
    assert_eq!(
        redis.expect_err("no such program").to_string(),
        "`redis-servr` was not found in PATH; install it with `apt-get install redis-server`"
    );
    let maria = PrivateMaria::options()
        .program("/nowhere/mariadbd")
        .start()
        .await;
    assert_eq!(
        maria.expect_err("no such program").to_string(),
        "`/nowhere/mariadbd` was not found; install it with `apt-get install mariadb-server`"
    );
}

#[tokio::test]
async fn a_server_that_does_not_start_shows_its_log() {
    let redis = PrivateRedis::options()
        .set("maxmemory", "a lot")
        .start()
        .await;
    let error = redis.expect_err("a bad directive").to_string();
    assert!(error.contains("argument must be a memory value"), "{error}");

    let maria = PrivateMaria::options()
        .set("no-such-option", "1")
        .start()
        .await;
    let error = maria.expect_err("a bad option").to_string();
    assert!(
        error.contains("unknown variable 'no-such-option=1'"),
        "{error}"
    );
}
