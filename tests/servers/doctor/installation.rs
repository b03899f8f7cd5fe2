//! Both servers at once: that all is well, and that nothing is changed.

use lapsed_doctor::{self as doctor, Severity};
use lapsed_sandbox::PrivateRedis;
use sqlx::{Connection, MySqlConnection};

use crate::doctor::rig::{Result, config, finding, ledger, redis, run, sql};

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
        "ledger.documents",
        "ledger.clock",
        "ledger.read_back",
        "ledger.isolation",
        "ledger.claim",
        "ledger.locked_rows",
        "ledger.generated",
        "ledger.index",
        "ledger.id",
        "ledger.buffer_pool",
        "ledger.backlog",
        "clocks",
    ] {
        finding(&report, check, Severity::Ok);
    }
    // Nothing but what cannot be known from here, the daemon that is not running, and the sandbox's own settings.
    let notes: Vec<_> = report
        .findings
        .iter()
        .filter(|finding| finding.severity == Severity::Note)
        .map(|finding| finding.check)
        .collect();
    assert_eq!(
        notes,
        [
            "redis.restart",
            "fleet.daemons",
            "redis.persistence",
            "ledger.durability"
        ],
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
    let rates = "SELECT CAST(COUNT(*) AS SIGNED) FROM tb_time_limit_task_rates";
    let rates: (i64,) = sqlx::query_as(rates).fetch_one(&mut conn).await?;
    assert_eq!(rates, (0,));
    Ok(())
}
