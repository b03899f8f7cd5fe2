//! `lapsed doctor`: what is wrong with an installation, and what to do about it.
//!
//! ```text
//! ask: Redis and the ledger, at the same time -> facts      judge: facts -> findings, without I/O
//! ```
//!
//! - A server that refuses a question costs a note, one that does not answer costs an error, and neither keeps the
//!   others from being examined.
//! - Everything ends by itself: a check after 5 s, a server's checks after 15 s.
//! - Examining changes nothing: rights are tried with statements that match no row and no key.
//! - It examines what a daemon would find. Which daemons run it knows from the notes that they keep in Redis.

mod clocks;
mod finding;
mod ledger;
mod redis;
mod report;
mod runner;
mod units;

use std::time::Duration;

use tokio::time::{Instant, timeout};

pub use finding::{Finding, Severity};
pub use report::Report;

use crate::Config;
use crate::config::ConfigSource;
use runner::Runner;

const CONFIGURATION: &str = "configuration";

/// All checks of one server together.
const SERVER_WITHIN: Duration = Duration::from_secs(15);

/// The change that [`fix`] makes.
const FIX_WITHIN: Duration = Duration::from_secs(4);

/// Examines what the configuration names: both servers, the table, the clocks.
///
/// Ends within 20 s, whatever the servers do.
pub async fn examine(config: &Config) -> Report {
    let until = Instant::now() + SERVER_WITHIN;
    let (mut of_redis, mut of_ledger) = (Runner::new(until), Runner::new(until));
    let (redis, ledger) = tokio::join!(
        redis::examine(config, &mut of_redis),
        ledger::examine(config, &mut of_ledger),
    );
    let findings = of_redis.findings.into_iter().chain(of_ledger.findings);
    findings.chain(clocks::compare(redis, ledger)).collect()
}

/// The finding that says where the configuration was read from.
pub fn configuration(source: &ConfigSource) -> Finding {
    let found = source.to_string();
    match source {
        ConfigSource::File(_) => Finding::ok(CONFIGURATION, found),
        ConfigSource::Defaults => Finding::note(CONFIGURATION, found)
            .remedy("name a file with `--config FILE` or `LAPSED_CONFIG`, unless the environment sets everything that differs"),
    }
}

/// Mends what can be mended without risk, then examines.
///
/// That is one thing: notification flags that are missing are added to those that are there. The first finding says
/// what was done; those of the examination say what a person must do.
pub async fn fix(config: &Config) -> Report {
    let done = match timeout(FIX_WITHIN, redis::add_flags(config)).await {
        Ok(done) => done,
        Err(_) => Finding::error("fix", "redis did not answer, so the change is not certain")
            .remedy("make sure that redis answers, then run `lapsed doctor --fix` again"),
    };
    std::iter::once(done)
        .chain(examine(config).await.findings)
        .collect()
}
