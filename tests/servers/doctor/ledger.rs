//! What is found of the database and its table.

use std::time::Duration;

use lapsed::ledger::migrate::{self, Options};
use lapsed::task::TableName;
use lapsed_doctor::{self as doctor, Severity};
use lapsed_sandbox::PrivateMaria;
use sqlx::{Connection, MySqlConnection};

use crate::doctor::rig::{
    Result, assert_contains, config, config_with, finding, ledger, ledger_only, redis, remedy, sql,
};
use crate::support::maria;

#[tokio::test]
async fn rejected_ledger_credentials_are_reported_and_not_shown() -> Result {
    let redis = redis().await?;
    ledger("ledger_credentials").await?;
    let port = maria::server().await.port();
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
    let url = maria::database("doctor_absent").await;
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
    let table = TableName::new("tb_time_limit_task")?;
    migrate::apply(&mut conn, &table, &Options::default(), &mut |_| {}).await?;
    let report = doctor::examine(&config).await;
    finding(&report, "ledger.table", Severity::Ok);
    finding(&report, "ledger.rates", Severity::Ok);
    let spare = finding(&report, "ledger.legacy_index", Severity::Note);
    assert_contains(remedy(spare), "DROP INDEX we");

    sql(
        &url,
        "ALTER TABLE tb_time_limit_task DROP INDEX ix_recurring",
    )
    .await?;
    let report = doctor::examine(&config).await;
    finding(&report, "ledger.table", Severity::Ok);
    let lack = finding(&report, "ledger.table", Severity::Note);
    assert_contains(&lack.found, "lacks index `ix_recurring`");
    assert_contains(remedy(lack), "lapsed migrate");

    sql(&url, "ALTER TABLE tb_time_limit_task DROP INDEX ix_method").await?;
    let report = doctor::examine(&config).await;
    let lack = finding(&report, "ledger.table", Severity::Note);
    assert_contains(&lack.found, "lacks index `ix_method`");
    assert_contains(&lack.found, "delays other overdue tasks");
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
    assert_contains(
        remedy(pausing),
        "GRANT INSERT, DELETE ON grants.tb_time_limit_task_pauses TO 'reader'@'%'",
    );
    let rates = finding(&report, "ledger.rates", Severity::Note);
    assert_contains(
        &rates.found,
        "may not SELECT, INSERT, UPDATE on `tb_time_limit_task_rates`",
    );
    assert_contains(remedy(rates), "GRANT SELECT, INSERT, UPDATE ON");
    let documents = finding(&report, "ledger.documents", Severity::Warning);
    assert_contains(&documents.found, "may not SELECT, INSERT, UPDATE, DELETE");
    assert_contains(
        remedy(documents),
        "GRANT SELECT, INSERT, UPDATE, DELETE ON grants.tb_time_limit_task_documents TO 'reader'@'%'",
    );
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
async fn an_archive_that_is_missing_or_cannot_be_changed_is_named_with_its_remedy() -> Result {
    let url = ledger("archive_rights").await?;
    let mut config = ledger_only(&url)?;
    config.retention.archive = true;
    let report = doctor::examine(&config).await;
    let missing = finding(&report, "ledger.archive", Severity::Error);
    assert_contains(
        &missing.found,
        "does not exist: finished tasks are neither archived nor deleted",
    );
    assert_contains(remedy(missing), "lapsed migrate");

    let mut conn = MySqlConnection::connect(&url).await?;
    let table = TableName::new("tb_time_limit_task")?;
    let options = Options::default().archive(true);
    migrate::apply(&mut conn, &table, &options, &mut |_| {}).await?;
    let report = doctor::examine(&config).await;
    finding(&report, "ledger.archive", Severity::Ok);

    sql(
        &url,
        "CREATE USER filler@'%' IDENTIFIED BY 's3cret'; \
         GRANT SELECT, INSERT, UPDATE, DELETE ON archive_rights.tb_time_limit_task TO filler@'%'; \
         GRANT SELECT ON archive_rights.tb_time_limit_task_pauses TO filler@'%'; \
         GRANT SELECT, INSERT ON archive_rights.tb_time_limit_task_archive TO filler@'%'",
    )
    .await?;
    let mut fills = ledger_only(&url.replace("root@", "filler:s3cret@"))?;
    fills.retention.archive = true;
    let report = doctor::examine(&fills).await;
    let lacks = finding(&report, "ledger.archive", Severity::Warning);
    assert_contains(
        &lacks.found,
        "tasks are archived, but no partitions are created",
    );
    let grant = "GRANT ALTER, CREATE, DROP, INSERT ON archive_rights.tb_time_limit_task_archive TO 'filler'@'%'";
    assert_contains(remedy(lacks), grant);
    // What the remedy says is enough.
    sql(&url, grant).await?;
    let report = doctor::examine(&fills).await;
    finding(&report, "ledger.archive", Severity::Ok);
    Ok(())
}

#[tokio::test]
async fn a_table_of_documents_that_is_missing_or_has_another_shape_is_a_warning() -> Result {
    let url = ledger("documents").await?;
    let config = ledger_only(&url)?;
    let documents = "tb_time_limit_task_documents";
    for (change, found, mend) in [
        (
            format!("ALTER TABLE {documents} RENAME COLUMN body TO text"),
            "Unknown column 'body'",
            "rename",
        ),
        (
            format!("ALTER TABLE {documents} DROP INDEX ix_written"),
            "ix_written",
            "rename",
        ),
        (
            format!("DROP TABLE {documents}"),
            "does not exist: there is no audit log",
            "lapsed migrate",
        ),
    ] {
        sql(&url, &change).await?;
        let report = doctor::examine(&config).await;
        let warning = finding(&report, "ledger.documents", Severity::Warning);
        assert_contains(&warning.found, found);
        assert_contains(remedy(warning), mend);
        finding(&report, "ledger.table", Severity::Ok);
    }
    let mut silent = config.clone();
    silent.http.listen = None;
    let report = doctor::examine(&silent).await;
    finding(&report, "ledger.documents", Severity::Note);

    let mut conn = MySqlConnection::connect(&url).await?;
    let table = TableName::new("tb_time_limit_task")?;
    migrate::apply(&mut conn, &table, &Options::default(), &mut |_| {}).await?;
    let report = doctor::examine(&config).await;
    finding(&report, "ledger.documents", Severity::Ok);
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
    let table = TableName::new("tb_time_limit_task")?;
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
async fn an_old_backlog_is_an_error_that_counts_what_will_run() -> Result {
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
    let backlog = finding(&report, "ledger.backlog", Severity::Error);
    assert_contains(
        &backlog.found,
        "3 tasks are overdue, the oldest for 2 h 1 min",
    );
    assert_contains(&backlog.found, "2 have a route here");
    assert_contains(&backlog.found, "1 has none and stays");
    finding(&report, "ledger.index", Severity::Ok);
    let pause = "INSERT INTO tb_time_limit_task_pauses (kind, class, method, since, set_by, reason) \
                 VALUES ('pause', '', '', 1, '', '')";
    sql(&url, pause).await?;
    let report = doctor::examine(&config_with("redis://unused/0", &url, routes)?).await;
    let backlog = finding(&report, "ledger.backlog", Severity::Warning);
    assert_contains(&backlog.found, "; 3 are paused or held");
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
