//! `lapsed doctor`: diagnoses an installation and suggests remedies.
//!
//! ```text
//! query: Redis and the ledger, concurrently -> facts      judge: facts -> findings, without I/O
//! ```
//!
//! - A query that a server refuses is a note; a server that does not answer is an error. Neither stops the other
//!   checks.
//! - Everything is bounded: a check takes at most 5 s, all checks of a server at most 15 s.
//! - Checks change nothing: permissions are tested with statements that match no row and no key.
//! - Checks see what a daemon would see. Running daemons are known from their heartbeats in Redis.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

#[cfg(test)]
mod assertions;
mod clocks;
mod daemon;
mod file;
mod ledger;
mod programs;
mod redis;
mod report;
mod runner;
mod secrets;

use std::time::Duration;

use tokio::time::{Instant, timeout};

pub use daemon::probe;
pub use lapsed::diagnosis::{Finding, Severity};
pub use programs::missing_programs;
pub use report::Report;
pub use secrets::{examine_secrets, exposed_secrets, has_password};

use lapsed::Config;
use lapsed::config::ConfigSource;
use runner::Runner;

const CONFIGURATION: &str = "configuration";

/// Time limit of all checks of one server.
const SERVER_WITHIN: Duration = Duration::from_secs(15);

/// Time limit of [`fix`].
const FIX_WITHIN: Duration = Duration::from_secs(4);

/// Runs all checks of the configured servers, the table and the clocks.
///
/// Returns within 20 s, even if a server hangs.
pub async fn examine(config: &Config) -> Report {
    let until = Instant::now() + SERVER_WITHIN;
    if config.ledger.sqlite_file().is_some() {
        let mut of_file = Runner::new(until);
        file::examine(config, &mut of_file).await;
        let daemon = daemon::examine(config).await;
        let findings = of_file.findings.into_iter().chain(daemon);
        return findings.chain(programs::examine(config)).collect();
    }
    let (mut of_redis, mut of_ledger) = (Runner::new(until), Runner::new(until));
    let (redis, ledger, daemon) = tokio::join!(
        redis::examine(config, &mut of_redis),
        ledger::examine(config, &mut of_ledger),
        daemon::examine(config),
    );
    let findings = of_redis.findings.into_iter().chain(of_ledger.findings);
    let findings = findings.chain(clocks::compare(redis, ledger));
    let findings = findings.chain(daemon);
    findings.chain(programs::examine(config)).collect()
}

/// Finding that names the source of the configuration.
pub fn configuration(source: &ConfigSource) -> Finding {
    let found = source.to_string();
    match source {
        ConfigSource::File(_) => Finding::ok(CONFIGURATION, found),
        ConfigSource::Defaults => Finding::note(CONFIGURATION, found)
            .remedy("name a file with `--config FILE` or `LAPSED_CONFIG`, unless the environment sets everything that differs"),
    }
}

/// Applies fixes that carry no risk, then runs all checks.
///
/// The only fix: missing notification flags are added to the present ones. The first finding reports the fix; the
/// others report what is left to do.
pub async fn fix(config: &Config) -> Report {
    if config.ledger.sqlite_file().is_some() {
        return examine(config).await;
    }
    let done = match timeout(FIX_WITHIN, redis::add_flags(config)).await {
        Ok(done) => done,
        Err(_) => Finding::error("fix", "redis did not answer, so the change is not certain")
            .remedy("make sure that redis answers, then run `lapsed doctor --fix` again"),
    };
    std::iter::once(done)
        .chain(examine(config).await.findings)
        .collect()
}
