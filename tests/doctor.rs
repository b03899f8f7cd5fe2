//! `lapsed doctor` against servers that are well, and against servers that are not.

use std::error::Error;
use std::time::Duration;

use lapsed::Config;
use lapsed::doctor::{self, Finding, Report, Severity};
use lapsed::ledger::migrate::{self, Options, Table};
use lapsed::sandbox::{PrivateMaria, PrivateRedis};
use sqlx::{AssertSqlSafe, Connection, MySqlConnection};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::OnceCell;
use tokio::time::Instant;

type Result<T = (), E = Box<dyn Error>> = std::result::Result<T, E>;

/// A server that is as it should be.
async fn redis() -> Result<PrivateRedis> {
    let options = PrivateRedis::options().set("notify-keyspace-events", "Exg");
    Ok(options.start().await?)
}

/// One server for all tests of this file; each has its own database.
async fn maria() -> Result<&'static PrivateMaria> {
    // A static is never dropped: the server dies with the process, and the next sandbox clears its directory.
    static MARIA: OnceCell<PrivateMaria> = OnceCell::const_new();
    Ok(MARIA.get_or_try_init(PrivateMaria::start).await?)
}

/// A database with the table in it.
async fn ledger(name: &str) -> Result<String> {
    let url = maria().await?.create_database(name).await?;
    let mut conn = MySqlConnection::connect(&url).await?;
    let table = Table::new("tb_time_limit_task")?;
    migrate::apply(&mut conn, &table, &Options::default(), &mut |_| {}).await?;
    Ok(url)
}

/// Answers nobody: connecting is refused.
fn nowhere() -> Result<String> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    Ok(listener.local_addr()?.to_string())
}

fn config(redis: &str, ledger: &str) -> Result<Config> {
    config_with(redis, ledger, "")
}

fn config_with(redis: &str, ledger: &str, more: &str) -> Result<Config> {
    let toml = format!("redis.url = '{redis}'\nledger.url = '{ledger}'\n{more}");
    Ok(Config::from_toml(&toml)?)
}

/// The ledger alone is of interest.
fn ledger_only(ledger: &str) -> Result<Config> {
    config_with("redis://unused/0", ledger, "timer = 'ledger_poll'")
}

/// The first finding of the check that is that bad, with a remedy if it is bad at all.
#[track_caller]
fn finding<'a>(report: &'a Report, check: &str, severity: Severity) -> &'a Finding {
    let mut findings = report.findings.iter();
    let found = findings.find(|finding| finding.check == check && finding.severity == severity);
    let found = found.unwrap_or_else(|| panic!("no {severity:?} of `{check}` in\n{report}"));
    assert!(
        severity < Severity::Warning || found.remedy.is_some(),
        "{found:?}"
    );
    found
}

#[track_caller]
fn assert_contains(text: &str, part: &str) {
    assert!(text.contains(part), "`{part}` is not in `{text}`");
}

#[track_caller]
fn remedy(finding: &Finding) -> &str {
    finding.remedy.as_deref().expect("there is a remedy")
}

async fn sql(url: &str, statements: &str) -> Result {
    let mut conn = MySqlConnection::connect(url).await?;
    sqlx::raw_sql(AssertSqlSafe(statements.to_owned()))
        .execute(&mut conn)
        .await?;
    Ok(())
}

async fn run<T: redis::FromRedisValue>(redis: &PrivateRedis, words: &[&str]) -> Result<T> {
    let client = redis::Client::open(redis.url())?;
    let mut admin = client.get_multiplexed_async_connection().await?;
    let mut command = redis::cmd(words[0]);
    Ok(command.arg(&words[1..]).query_async(&mut admin).await?)
}

#[tokio::test]
async fn an_installation_that_is_well_has_no_warning() -> Result {
    let redis = redis().await?;
    let url = ledger("well").await?;
    let report = doctor::examine(&config(&redis.url(), &url)?).await;
    assert!(report.worst() <= Severity::Note, "{report}");
    for check in [
        "redis.reachable",
        "redis.version",
        "redis.role",
        "redis.cluster",
        "redis.notifications",
        "redis.eviction",
        "redis.output_buffer",
        "redis.listeners",
        "redis.rights",
        "redis.lateness",
        "ledger.reachable",
        "ledger.session",
        "ledger.version",
        "ledger.read_only",
        "ledger.binlog",
        "ledger.packet",
        "ledger.connections",
        "ledger.table",
        "ledger.grants",
        "ledger.pauses",
        "ledger.index",
        "ledger.id",
        "ledger.buffer_pool",
        "ledger.backlog",
        "clocks",
    ] {
        finding(&report, check, Severity::Ok);
    }
    // Nothing but what cannot be known from here, and the sandbox's own settings.
    let notes: Vec<_> = report
        .findings
        .iter()
        .filter(|finding| finding.severity == Severity::Note)
        .map(|finding| finding.check)
        .collect();
    assert_eq!(
        notes,
        ["redis.restart", "redis.persistence", "ledger.durability"],
        "{report}"
    );
    println!("{report}");
    Ok(())
}

#[tokio::test]
async fn examining_changes_nothing() -> Result {
    let redis = PrivateRedis::start().await?;
    let url = ledger("unchanged").await?;
    sql(
        &url,
        "INSERT INTO tb_time_limit_task (`key`, start_time, end_time) VALUES ('A@b', 1, 2)",
    )
    .await?;
    let report = doctor::examine(&config(&redis.url(), &url)?).await;
    finding(&report, "redis.rights", Severity::Ok);
    finding(&report, "ledger.grants", Severity::Ok);

    assert_eq!(run::<u64>(&redis, &["DBSIZE"]).await?, 0);
    let flags: Vec<String> = run(&redis, &["CONFIG", "GET", "notify-keyspace-events"]).await?;
    assert_eq!(flags, ["notify-keyspace-events", ""]);
    let mut conn = MySqlConnection::connect(&url).await?;
    let row: (String, i64) = sqlx::query_as(
        "SELECT CONCAT_WS(' ', id, `key`, status, sts, end_time, lease_until), \
           (SELECT CAST(COUNT(*) AS SIGNED) FROM tb_time_limit_task) FROM tb_time_limit_task",
    )
    .fetch_one(&mut conn)
    .await?;
    assert_eq!(row, ("1 A@b 0 0 2.000 0.000".to_owned(), 1));
    Ok(())
}

#[tokio::test]
async fn missing_flags_are_an_error_and_fixing_adds_them_beside_the_others() -> Result {
    let redis = PrivateRedis::options()
        .set("notify-keyspace-events", "Kg")
        .start()
        .await?;
    let config = config(&redis.url(), &ledger("flags").await?)?;
    let report = doctor::examine(&config).await;
    let off = finding(&report, "redis.notifications", Severity::Error);
    assert_contains(remedy(off), "lapsed doctor --fix");

    let report = doctor::fix(&config).await;
    assert!(report.worst() < Severity::Warning, "{report}");
    let done = &report.findings[0];
    assert_eq!((done.check, done.severity), ("fix", Severity::Ok));
    assert_contains(&done.found, "until the server restarts");
    assert_contains(remedy(done), "redis.conf");
    let flags: Vec<String> = run(&redis, &["CONFIG", "GET", "notify-keyspace-events"]).await?;
    for flag in ["K", "g", "E", "x"] {
        assert_contains(&flags[1], flag);
    }

    let report = doctor::fix(&config).await;
    assert_contains(&report.findings[0].found, "nothing to do");
    Ok(())
}

#[tokio::test]
async fn what_a_redis_user_may_not_do_is_a_note_or_an_error_with_a_remedy() -> Result {
    let redis = redis().await?;
    let acl = "ACL SETUSER weak on >s3cret allkeys resetchannels -@all +pttl +get +getrange +psubscribe +ping +select +hello";
    let words: Vec<&str> = acl.split(' ').collect();
    let () = run(&redis, &words).await?;
    let url = redis.url().replace("redis://", "redis://weak:s3cret@");
    let config = config(&url, &ledger("weak").await?)?;
    let report = doctor::examine(&config).await;

    finding(&report, "redis.reachable", Severity::Ok);
    for check in ["redis.notifications", "redis.role", "redis.output_buffer"] {
        let unknown = finding(&report, check, Severity::Note);
        assert_contains(&unknown.found, "could not be checked");
    }
    let lacking: Vec<_> = report
        .findings
        .iter()
        .filter(|finding| finding.check == "redis.rights")
        .map(|finding| &finding.found[..])
        .collect();
    assert_eq!(lacking.len(), 3, "{report}");
    for (found, part) in lacking.iter().zip(["`SET`", "`DEL`", "`PSUBSCRIBE`"]) {
        assert_contains(found, part);
    }
    let rights = finding(&report, "redis.rights", Severity::Error);
    assert_contains(remedy(rights), "&__keyevent@0__:expired");

    let report = doctor::fix(&config).await;
    assert_eq!(report.findings[0].severity, Severity::Note, "{report}");
    assert_contains(&report.findings[0].found, "nothing was changed");
    assert!(!report.to_string().contains("s3cret"), "{report}");
    Ok(())
}

#[tokio::test]
async fn credentials_that_redis_refuses_are_told_and_not_shown() -> Result {
    let redis = redis().await?;
    // Set afterwards, because the sandbox would be refused, too.
    let () = run(&redis, &["CONFIG", "SET", "requirepass", "right"]).await?;
    let ledger = ledger("redis_credentials").await?;
    for user_info in ["", ":s3cret@", "nobody:s3cret@"] {
        let url = redis
            .url()
            .replace("redis://", &format!("redis://{user_info}"));
        let report = doctor::examine(&config(&url, &ledger)?).await;
        let refused = finding(&report, "redis.reachable", Severity::Error);
        assert_contains(&refused.found, "refuses the credentials");
        assert_contains(remedy(refused), "redis.url");
        assert!(!report.to_string().contains("s3cret"), "{report}");
        finding(&report, "ledger.table", Severity::Ok);
    }
    Ok(())
}

#[tokio::test]
async fn a_policy_that_evicts_keys_is_a_warning() -> Result {
    let redis = redis().await?;
    for words in [
        ["CONFIG", "SET", "maxmemory", "100mb"],
        ["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"],
        [
            "CONFIG",
            "SET",
            "client-output-buffer-limit",
            "pubsub 256kb 128kb 60",
        ],
    ] {
        let () = run(&redis, &words).await?;
    }
    let report = doctor::examine(&config(&redis.url(), &ledger("eviction").await?)?).await;
    let evicts = finding(&report, "redis.eviction", Severity::Warning);
    assert_contains(&evicts.found, "`allkeys-lru`");
    assert_contains(remedy(evicts), "noeviction");
    let buffer = finding(&report, "redis.output_buffer", Severity::Warning);
    assert_contains(&buffer.found, "about 2 221 events");
    Ok(())
}

#[tokio::test]
async fn a_replica_is_an_error_that_names_its_master() -> Result {
    let (master, replica) = (redis().await?, redis().await?);
    let port = master.port().to_string();
    let () = run(&replica, &["REPLICAOF", "127.0.0.1", &port]).await?;
    let report = doctor::examine(&config(&replica.url(), &ledger("replica").await?)?).await;
    let role = finding(&report, "redis.role", Severity::Error);
    assert_contains(remedy(role), &format!("127.0.0.1:{port}"));
    Ok(())
}

#[tokio::test]
async fn a_cluster_is_an_error() -> Result {
    let redis = PrivateRedis::options()
        .set("cluster-enabled", "yes")
        .start()
        .await?;
    let report = doctor::examine(&config(&redis.url(), &ledger("cluster").await?)?).await;
    finding(&report, "redis.cluster", Severity::Error);
    Ok(())
}

#[tokio::test]
async fn another_listener_is_noted_whichever_way_it_listens() -> Result {
    let redis = redis().await?;
    let config = config(&redis.url(), &ledger("listeners").await?)?;
    let client = redis::Client::open(redis.url())?;
    let mut by_pattern = client.get_async_pubsub().await?;
    by_pattern.psubscribe("__keyevent@*__:expired").await?;
    let mut by_name = client.get_async_pubsub().await?;
    by_name.subscribe("__keyevent@0__:expired").await?;
    let mut elsewhere = client.get_async_pubsub().await?;
    elsewhere.subscribe("news").await?;

    let report = doctor::examine(&config).await;
    let listeners = finding(&report, "redis.listeners", Severity::Note);
    assert_contains(&listeners.found, "2 other clients listen");
    assert_contains(remedy(listeners), "PHP");
    Ok(())
}

#[tokio::test]
async fn the_lateness_of_bare_events_is_predicted_from_the_keys_that_expire() -> Result {
    let redis = redis().await?;
    let script = "for i = 1, 5000 do redis.call('SET', 'k' .. i, '', 'EX', 100000) end";
    let () = run(&redis, &["EVAL", script, "0"]).await?;
    let () = run(&redis, &["CONFIG", "SET", "active-expire-effort", "2"]).await?;
    let ledger = ledger("lateness").await?;
    let report = doctor::examine(&config(&redis.url(), &ledger)?).await;
    let late = finding(&report, "redis.lateness", Severity::Note);
    // 5 000 / (10 * 25)
    assert_contains(&late.found, "up to 20.0 s late");
    let config = config_with(&redis.url(), &ledger, "nudge.enabled = false")?;
    finding(
        &doctor::examine(&config).await,
        "redis.lateness",
        Severity::Warning,
    );
    Ok(())
}

#[tokio::test]
async fn servers_that_are_not_there_are_errors() -> Result {
    let (redis, maria) = (nowhere()?, nowhere()?);
    let config = config(
        &format!("redis://{redis}/0"),
        &format!("mysql://root:s3cret@{maria}/x"),
    )?;
    let started = Instant::now();
    let report = doctor::examine(&config).await;
    assert!(started.elapsed() < Duration::from_secs(3), "{report}");
    for (check, address) in [("redis.reachable", redis), ("ledger.reachable", maria)] {
        let found = finding(&report, check, Severity::Error);
        assert_contains(&found.found, &address);
        assert_contains(&found.found, "refused");
    }
    assert_eq!(report.findings.len(), 2, "{report}");
    assert!(!report.to_string().contains("s3cret"), "{report}");

    let report = doctor::fix(&config).await;
    assert_eq!(report.findings[0].severity, Severity::Error, "{report}");
    Ok(())
}

#[tokio::test]
async fn servers_that_hang_do_not_hang_the_doctor() -> Result {
    let redis = redis().await?;
    let maria = PrivateMaria::start().await?;
    let config = config(&redis.url(), &maria.create_database("hung").await?)?;
    redis.stop_process()?;
    maria.stop_process()?;
    let started = Instant::now();
    let report = tokio::spawn(async move { doctor::fix(&config).await }).await?;
    assert!(started.elapsed() < Duration::from_secs(20), "{report}");
    for check in ["fix", "redis.reachable", "ledger.reachable"] {
        finding(&report, check, Severity::Error);
    }
    Ok(())
}

#[tokio::test]
async fn credentials_that_the_ledger_refuses_are_told_and_not_shown() -> Result {
    let redis = redis().await?;
    ledger("ledger_credentials").await?;
    let port = maria().await?.port();
    let url_of = |user: &str, database: &str| {
        let user = user.to_owned();
        format!("mysql://{user}@127.0.0.1:{port}/{database}")
    };
    for (user, database, part) in [
        ("root:s3cret", "ledger_credentials", "user and password"),
        ("nobody:s3cret", "ledger_credentials", "user and password"),
        ("root", "no_such", "create the database"),
    ] {
        let report = doctor::examine(&config(&redis.url(), &url_of(user, database))?).await;
        let refused = finding(&report, "ledger.reachable", Severity::Error);
        assert_contains(remedy(refused), part);
        assert!(!report.to_string().contains("s3cret"), "{report}");
        finding(&report, "redis.role", Severity::Ok);
    }
    Ok(())
}

#[tokio::test]
async fn a_missing_table_is_an_error_and_so_is_an_outdated_one() -> Result {
    let url = maria().await?.create_database("absent").await?;
    let config = ledger_only(&url)?;
    let report = doctor::examine(&config).await;
    let absent = finding(&report, "ledger.table", Severity::Error);
    assert_contains(&absent.found, "does not exist");
    assert_contains(remedy(absent), "lapsed migrate");

    sql(
        &url,
        "CREATE TABLE tb_time_limit_task (id INT(10) UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, \
           `key` VARCHAR(255) CHARACTER SET utf8 COLLATE utf8_bin NOT NULL, status TINYINT(3) UNSIGNED NOT NULL, \
           start_time DECIMAL(13,3) UNSIGNED NOT NULL, end_time DECIMAL(13,3) UNSIGNED NOT NULL, \
           sts TINYINT(3) UNSIGNED NOT NULL, KEY we (`key`)) ENGINE=InnoDB AUTO_INCREMENT=3900000000",
    )
    .await?;
    let report = doctor::examine(&config).await;
    let outdated = finding(&report, "ledger.table", Severity::Error);
    assert_contains(&outdated.found, "lacks column");
    finding(&report, "ledger.grants", Severity::Ok);
    let id = finding(&report, "ledger.id", Severity::Warning);
    assert_contains(&id.found, "91 %");

    let mut conn = MySqlConnection::connect(&url).await?;
    let table = Table::new("tb_time_limit_task")?;
    migrate::apply(&mut conn, &table, &Options::default(), &mut |_| {}).await?;
    let report = doctor::examine(&config).await;
    finding(&report, "ledger.table", Severity::Ok);
    let spare = finding(&report, "ledger.legacy_index", Severity::Note);
    assert_contains(remedy(spare), "DROP INDEX we");
    Ok(())
}

#[tokio::test]
async fn rights_that_are_missing_on_the_table_are_named_in_the_grant() -> Result {
    let url = ledger("grants").await?;
    sql(
        &url,
        "CREATE USER reader@'%' IDENTIFIED BY 's3cret'; GRANT SELECT ON grants.tb_time_limit_task TO reader@'%'; \
         GRANT SELECT ON grants.tb_time_limit_task_pauses TO reader@'%'",
    )
    .await?;
    let config = ledger_only(&url.replace("root@", "reader:s3cret@"))?;
    let report = doctor::examine(&config).await;
    let refused = finding(&report, "ledger.grants", Severity::Error);
    assert_contains(&refused.found, "reader@% may not INSERT, UPDATE");
    assert_contains(
        remedy(refused),
        "GRANT INSERT, UPDATE ON grants.tb_time_limit_task TO 'reader'@'%'",
    );
    finding(&report, "ledger.index", Severity::Ok);
    let pausing = finding(&report, "ledger.pauses", Severity::Note);
    assert_contains(&pausing.found, "may not INSERT, DELETE");
    assert_contains(remedy(pausing), "GRANT SELECT, INSERT, DELETE ON");
    let pruning = finding(&report, "ledger.grants", Severity::Note);
    assert_contains(&pruning.found, "reader@% may not DELETE");
    assert_contains(
        remedy(pruning),
        "GRANT DELETE ON grants.tb_time_limit_task TO 'reader'@'%'",
    );
    // Where the daemon itself is to delete, it is an error.
    let mut deletes = config.clone();
    deletes.retention.done = Some(Duration::from_secs(3_600));
    let report = doctor::examine(&deletes).await;
    let refused = finding(&report, "ledger.grants", Severity::Error);
    assert_contains(&refused.found, "reader@% may not INSERT, UPDATE, DELETE");
    assert!(!report.to_string().contains("s3cret"), "{report}");
    Ok(())
}

#[tokio::test]
async fn settings_of_the_database_that_break_the_ledger_are_errors() -> Result {
    let maria = PrivateMaria::options()
        .set("log-bin", "bin")
        .set("server-id", "1")
        .set("binlog-format", "STATEMENT")
        .set("max-connections", "10")
        .set("max-allowed-packet", "64K")
        .start()
        .await?;
    let url = maria.create_database("settings").await?;
    let mut conn = MySqlConnection::connect(&url).await?;
    sqlx::raw_sql("SET SESSION binlog_format = ROW")
        .execute(&mut conn)
        .await?;
    let table = Table::new("tb_time_limit_task")?;
    migrate::apply(&mut conn, &table, &Options::default(), &mut |_| {}).await?;
    sql(&url, "SET GLOBAL read_only = 1").await?;

    let report = doctor::examine(&ledger_only(&url)?).await;
    let binlog = finding(&report, "ledger.binlog", Severity::Error);
    assert_contains(&binlog.found, "1665");
    finding(&report, "ledger.read_only", Severity::Error);
    finding(&report, "ledger.packet", Severity::Warning);
    let connections = finding(&report, "ledger.connections", Severity::Warning);
    assert_contains(&connections.found, "allows 10");
    Ok(())
}

#[tokio::test]
async fn a_backlog_is_noted_with_what_will_run_and_what_will_not() -> Result {
    let url = ledger("backlog").await?;
    sql(
        &url,
        "INSERT INTO tb_time_limit_task (`key`, start_time, end_time, status, sts) VALUES \
           ('Order@close@1', 1, UNIX_TIMESTAMP() - 7260, 0, 0), ('Order@close@2', 1, UNIX_TIMESTAMP() - 60, 0, 0), \
           ('Shop@open', 1, UNIX_TIMESTAMP() - 60, 0, 0), ('Order@close@3', 1, UNIX_TIMESTAMP() + 60, 0, 0), \
           ('Order@close@4', 1, UNIX_TIMESTAMP() - 60, 1, 0), ('Order@close@5', 1, UNIX_TIMESTAMP() - 60, 0, 1)",
    )
    .await?;
    let routes = "timer = 'ledger_poll'\n[[routes]]\nmatch = '^Order@'\nlog = {}";
    let report = doctor::examine(&config_with("redis://unused/0", &url, routes)?).await;
    let backlog = finding(&report, "ledger.backlog", Severity::Note);
    assert_contains(
        &backlog.found,
        "3 tasks are overdue, the oldest for 2 h 1 min",
    );
    assert_contains(&backlog.found, "2 have a route here");
    assert_contains(&backlog.found, "1 has none and stays");
    finding(&report, "ledger.index", Severity::Ok);
    Ok(())
}

/// Passes everything on until a client says `word`; from then on, nothing.
async fn mute_at(word: &'static str, port: u16) -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(async move {
                let server = TcpStream::connect(("127.0.0.1", port)).await?;
                let (mut from_client, mut to_client) = client.into_split();
                let (mut from_server, mut to_server) = server.into_split();
                tokio::spawn(
                    async move { tokio::io::copy(&mut from_server, &mut to_client).await },
                );
                let mut said = vec![0; 65536];
                loop {
                    let length = from_client.read(&mut said).await?;
                    if String::from_utf8_lossy(&said[..length]).contains(word) {
                        std::future::pending::<()>().await;
                    }
                    to_server.write_all(&said[..length]).await?;
                    if length == 0 {
                        return std::io::Result::Ok(());
                    }
                }
            });
        }
    });
    Ok(address.port())
}

#[tokio::test]
async fn servers_that_fall_silent_half_way_keep_what_was_found_by_then() -> Result {
    let redis = redis().await?;
    let ledger = ledger("silent").await?;
    let maria_port = maria().await?.port();
    let (redis_port, ledger_port) = (
        mute_at("NUMSUB", redis.port()).await?,
        mute_at("SHOW VARIABLES", maria_port).await?,
    );
    let config = config(
        &redis
            .url()
            .replace(&redis.port().to_string(), &redis_port.to_string()),
        // Readable on its way: MySQL has TLS switched on.
        &(ledger.replace(&maria_port.to_string(), &ledger_port.to_string())
            + "?ssl-mode=disabled"),
    )?;
    let started = Instant::now();
    let report = doctor::examine(&config).await;
    assert!(started.elapsed() < Duration::from_secs(10), "{report}");
    finding(&report, "redis.role", Severity::Ok);
    finding(&report, "ledger.session", Severity::Ok);
    for check in ["redis.listeners", "ledger.version"] {
        let silent = finding(&report, check, Severity::Error);
        assert_contains(&silent.found, "stopped answering");
    }
    Ok(())
}

#[tokio::test]
async fn a_table_that_somebody_locks_is_not_waited_for() -> Result {
    let url = ledger("locked").await?;
    let mut conn = MySqlConnection::connect(&url).await?;
    sqlx::raw_sql("LOCK TABLES tb_time_limit_task WRITE")
        .execute(&mut conn)
        .await?;
    let report = doctor::examine(&ledger_only(&url)?).await;
    let backlog = finding(&report, "ledger.backlog", Severity::Note);
    assert_contains(&backlog.found, "could not be checked");
    finding(&report, "ledger.version", Severity::Ok);
    conn.close().await?;
    Ok(())
}

#[tokio::test]
async fn an_index_that_the_server_may_not_use_is_an_error() -> Result {
    let url = ledger("ignored").await?;
    let change = "ALTER TABLE tb_time_limit_task ALTER INDEX ix_due";
    if sql(&url, &format!("{change} IGNORED")).await.is_err() {
        sql(&url, &format!("{change} INVISIBLE")).await?; // MySQL's word for it
    }
    let report = doctor::examine(&ledger_only(&url)?).await;
    let index = finding(&report, "ledger.index", Severity::Error);
    assert_contains(remedy(index), "NOT IGNORED");
    Ok(())
}
