//! Retention: deletes or archives finished tasks as configured, in small batches far apart, so that no task is late because of it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::config::RetentionConfig;
use crate::engine::activity::Activity;
use crate::engine::health::LedgerHealth;
use crate::engine::pace::jittered;
use crate::engine::reports::{Reporter, RetentionBehind};
use crate::handler::Router;
use crate::ledger::pruning::{end_cancelled, pages_without_keys};
use crate::ledger::{self, LedgerError, Prune};
use crate::membership::Ownership;
use crate::task::{State, TaskKey};
use crate::timer::{Remaining, Timer, TimerError};

/// Rows that one statement examines.
const BATCH: u32 = 500;

/// Minimum and maximum interval between passes. Rows kept for longer are looked for less often.
const EVERY_MIN: Duration = Duration::from_secs(10);
const EVERY_MAX: Duration = Duration::from_secs(600);

/// The interval is this fraction of the retention: rows kept for an hour are looked for every 36 seconds, rows kept for
/// a week every ten minutes ([`EVERY_MAX`]).
const EVERY_SHARE: u32 = 100;

/// Number of batches whose keys are checked together, before the first of them is deleted.
const PAGES: usize = 40;

/// Time limit of a pass. The next pass starts over from the oldest rows, and retention counts as behind.
const PASS_MAX: Duration = Duration::from_secs(60);

/// Rest between batches, also between those that delete nothing: they read.
const REST: Duration = Duration::from_millis(20);

/// Prunes finished tasks that are past their retention.
pub struct Retention {
    pub ledger: Arc<dyn ledger::Retention>,
    pub health: Arc<LedgerHealth>,
    pub timer: Arc<dyn Timer>,
    /// True if entries stay after their due time: they are no evidence of a key that a program armed.
    pub keeps_entries: bool,
    pub router: Arc<Router>,
    pub ownership: Arc<Ownership>,
    pub reporter: Arc<Reporter>,
    pub activity: Arc<Activity>,
    pub configured: watch::Receiver<RetentionConfig>,
}

impl Retention {
    /// Prunes in passes, each by the current configuration. One daemon of several does it; two
    /// at a time are harmless.
    pub async fn run(self) {
        let mut configured = self.configured.clone();
        let activity = &self.activity;
        let mut is_behind = false;
        loop {
            let retention = *configured.borrow_and_update();
            let wait = match is_behind {
                true => REST,
                false => jittered(interval(&retention)),
            };
            let cause = tokio::select! {
                cause = activity.next(wait), if !retention.is_off() => cause,
                changed = configured.changed() => match changed {
                    Ok(()) => continue,
                    // The engine was dropped.
                    Err(_) => return,
                },
            };
            is_behind = false;
            if self.ownership.is_first() {
                let pass = async {
                    is_behind = self.prune_pass(&configured, retention).await?;
                    if retention.archive {
                        self.maintain_archive(retention).await?;
                    }
                    Ok::<_, LedgerError>(())
                };
                if let Err(error) = activity.pass(cause, pass).await {
                    self.health.log_failure("prune finished tasks", &error);
                }
            }
        }
    }

    /// Prunes until no more rows are past their retention, the configuration changes, or [`PASS_MAX`] has passed. Takes
    /// some batches of each state in turn, so that no state blocks another. Returns true if more rows are left.
    async fn prune_pass(
        &self,
        configured: &watch::Receiver<RetentionConfig>,
        retention: RetentionConfig,
    ) -> Result<bool, LedgerError> {
        let has_changed = || configured.has_changed().unwrap_or(true);
        let RetentionConfig {
            done,
            dead,
            cancelled,
            done_max,
            rate,
            archive,
            archive_keep: _,
        } = retention;
        if cancelled.is_some() {
            let ended = end_cancelled(&*self.ledger).await?;
            if ended > 0 {
                tracing::debug!(
                    rows = ended,
                    "ended tasks that were cancelled during runs whose leases ran out"
                );
            }
        }
        let until = Instant::now() + PASS_MAX;
        let mut passes = Vec::new();
        for (state, age, max) in [
            (State::Done, done, done_max),
            (State::Dead, dead, None),
            (State::Cancelled, cancelled, None),
        ] {
            let surplus = match max {
                Some(max) => self.ledger.surplus(state, max).await?,
                None => None,
            };
            if age.is_none() && surplus.is_none() {
                self.reporter.metrics.prune_behind(state, false);
                continue;
            }
            let prune = Prune {
                state,
                age,
                surplus,
                after: None,
                limit: BATCH.min(rate),
                archive,
                dry_run: false,
            };
            passes.push((prune, 0));
        }
        while !passes.is_empty() && Instant::now() < until {
            let mut more = Vec::with_capacity(passes.len());
            for (mut prune, mut pruned) in passes {
                let pages = match self.without_keys(&mut prune).await {
                    Ok(pages) => pages,
                    Err(PruneError::Ledger(error)) => return Err(error),
                    Err(PruneError::Timer(_)) => {
                        tracing::debug!("finished tasks are kept while redis does not answer");
                        return Ok(false);
                    }
                };
                for page in pages {
                    let rows = self.ledger.prune_rows(&prune, &page).await?;
                    self.reporter.metrics.pruned(prune.state, rows);
                    pruned += rows;
                    let due = Duration::from_secs(rows) / rate;
                    tokio::time::sleep(due.max(REST)).await;
                    if has_changed() {
                        return Ok(false);
                    }
                }
                match prune.after {
                    Some(_) => more.push((prune, pruned)),
                    None => {
                        self.reporter.metrics.prune_behind(prune.state, false);
                        log_pruned(&prune, pruned);
                    }
                }
            }
            passes = more;
        }
        for (prune, pruned) in &passes {
            log_pruned(prune, *pruned);
            RetentionBehind { state: prune.state }.emit(&self.reporter);
        }
        Ok(!passes.is_empty())
    }

    /// Prepares the archive for months to come, and deletes what is older than `archive_keep`, for at most [`PASS_MAX`].
    async fn maintain_archive(&self, retention: RetentionConfig) -> Result<(), LedgerError> {
        let until = Instant::now() + PASS_MAX;
        let mut rows = 0;
        loop {
            let done = self.ledger.maintain_archive(retention.archive_keep).await?;
            rows += done.rows;
            if !done.created.is_empty() {
                tracing::info!(partitions = ?done.created, "created partitions of the archive");
            }
            if !done.dropped.is_empty() {
                tracing::info!(partitions = ?done.dropped, "dropped partitions of the archive, whose tasks are past `archive_keep`");
            }
            if !done.is_behind || Instant::now() >= until {
                break;
            }
            let due = Duration::from_secs(done.rows) / retention.rate;
            tokio::time::sleep(due.max(REST)).await;
        }
        if rows > 0 {
            tracing::info!(rows, "deleted archived tasks past `archive_keep`");
        }
        Ok(())
    }

    /// Returns the next pages of rows that may be pruned: those whose keys are gone.
    async fn without_keys(&self, prune: &mut Prune) -> Result<Vec<Vec<u64>>, PruneError> {
        // No key is adopted where no route of any daemon adopts.
        let adopts = self.router.adopts_any() || self.ownership.others_adopt();
        let adopts = adopts && !self.keeps_entries;
        let are_gone = |keys: Vec<TaskKey>| async move {
            tokio::time::sleep(REST).await;
            if !adopts {
                return Ok(vec![true; keys.len()]);
            }
            let remaining = self.timer.remaining(&keys).await?;
            let is_gone = |remaining: Remaining| !matches!(remaining, Remaining::Ms(_));
            Ok(remaining.into_iter().map(is_gone).collect())
        };
        pages_without_keys(&*self.ledger, prune, PAGES, are_gone).await
    }
}

/// Why a pass could not prune.
#[derive(Debug, thiserror::Error)]
enum PruneError {
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error(transparent)]
    Timer(#[from] TimerError),
}

/// Logs the number of pruned rows.
fn log_pruned(prune: &Prune, rows: u64) {
    let state = prune.state;
    match prune.archive {
        _ if rows == 0 => {}
        true => tracing::info!(%state, rows, "archived finished tasks past their retention"),
        false => tracing::info!(%state, rows, "pruned finished tasks past their retention"),
    }
}

/// Interval between two passes.
fn interval(retention: &RetentionConfig) -> Duration {
    let ages = [retention.done, retention.dead, retention.cancelled];
    let shortest = ages.into_iter().flatten().min();
    let every = shortest.map_or(EVERY_MIN * 6, |age| age / EVERY_SHARE);
    let longest = match retention.done_max {
        Some(_) => EVERY_MIN * 6,
        None => EVERY_MAX,
    };
    every.clamp(EVERY_MIN, longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_longer_retention_is_checked_less_often() {
        let config = |text: &str| crate::Config::from_toml(text).unwrap().retention;
        let seconds = |text: &str| interval(&config(text)).as_secs();
        assert_eq!(seconds("retention.done = '60s'"), 10);
        assert_eq!(seconds("retention.done = '1h'"), 36);
        assert_eq!(seconds("retention.done = '7d'"), 600);
        assert_eq!(seconds("retention = { done = '7d', done_max = 5 }"), 60);
        assert_eq!(seconds("retention.done_max = 5"), 60);
    }
}
