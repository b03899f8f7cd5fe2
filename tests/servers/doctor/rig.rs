//! Servers to be examined, and what is said about them.

use std::error::Error;

use lapsed::Config;
use lapsed::ledger::migrate::{self, Options};
use lapsed::task::TableName;
use lapsed_doctor::{Finding, Report, Severity};
use lapsed_sandbox::PrivateRedis;
use sqlx::{AssertSqlSafe, Connection, MySqlConnection};

use crate::support::maria;
use crate::support::redis_commands::ask;

pub type Result<T = (), E = Box<dyn Error>> = std::result::Result<T, E>;

/// A server that is as it should be.
pub async fn redis() -> Result<PrivateRedis> {
    let options = PrivateRedis::options().set("notify-keyspace-events", "Exg");
    Ok(options.start().await?)
}

/// A database with the table in it.
pub async fn ledger(name: &str) -> Result<String> {
    let url = maria::database(name).await;
    let mut conn = MySqlConnection::connect(&url).await?;
    let table = TableName::new("tb_time_limit_task")?;
    migrate::apply(&mut conn, &table, &Options::default(), &mut |_| {}).await?;
    Ok(url)
}

pub fn config(redis: &str, ledger: &str) -> Result<Config> {
    config_with(redis, ledger, "")
}

pub fn config_with(redis: &str, ledger: &str, more: &str) -> Result<Config> {
    let toml = format!("redis.url = '{redis}'\nledger.url = '{ledger}'\n{more}");
    Ok(Config::from_toml(&toml)?)
}

/// The ledger alone is of interest.
pub fn ledger_only(ledger: &str) -> Result<Config> {
    config_with("redis://unused/0", ledger, "timer = 'ledger_poll'")
}

/// The first finding of the check that is that bad, with a remedy if it is bad at all.
#[track_caller]
pub fn finding<'a>(report: &'a Report, check: &str, severity: Severity) -> &'a Finding {
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
pub fn assert_contains(text: &str, part: &str) {
    assert!(text.contains(part), "`{part}` is not in `{text}`");
}

#[track_caller]
pub fn remedy(finding: &Finding) -> &str {
    finding.remedy.as_deref().expect("there is a remedy")
}

/// Statements of somebody with all rights.
pub async fn sql(url: &str, statements: &str) -> Result {
    let mut conn = MySqlConnection::connect(url).await?;
    sqlx::raw_sql(AssertSqlSafe(statements.to_owned()))
        .execute(&mut conn)
        .await?;
    Ok(())
}

/// A command of somebody with all rights.
pub async fn run<T: redis::FromRedisValue>(redis: &PrivateRedis, words: &[&str]) -> Result<T> {
    Ok(ask(&mut redis.connect(0).await?, words).await)
}
