//! Forgetting finished tasks, as the configuration says: few at a time and far apart, so that no task is late for it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::Shared;
use crate::config::RetentionConfig;
use crate::ledger::{Catalog, LedgerError, Prune, Pruned};
use crate::task::State;

/// Rows that one statement looks at.
const BATCH: u32 = 500;

/// How often old rows are looked for: not often where they are kept for long.
const EVERY_MIN: Duration = Duration::from_secs(10);
const EVERY_MAX: Duration = Duration::from_secs(600);

/// What is kept for a week is looked for every ten minutes, what is kept for an hour every 36 seconds.
const EVERY_SHARE: u32 = 100;

/// Batches that delete nothing are apart, too: they read.
const REST: Duration = Duration::from_millis(20);

impl Shared {
    /// Deletes what is old enough, again and again, as the configuration says then. One daemon of many does it; that
    /// two do for a while is harmless.
    pub(super) async fn forget_until_stopped(self: Arc<Self>) {
        let Some(catalog) = self.parts.catalog.clone() else {
            return;
        };
        let work = async {
            let mut configured = self.retention.subscribe();
            loop {
                let retention = *configured.borrow_and_update();
                let wait = self.jittered(every(&retention));
                tokio::select! {
                    () = tokio::time::sleep(wait), if !retention.is_off() => {}
                    changed = configured.changed() => {
                        changed.expect("the sender is `self`");
                        continue;
                    }
                }
                if self.share.is_first() {
                    match self.forget(&*catalog, &configured, retention).await {
                        Ok(()) => {}
                        Err(error) => self.complain("prune finished tasks", &error),
                    }
                }
            }
        };
        self.stopping.run_until_cancelled(work).await;
    }

    /// Until all that is old enough is gone, or the configuration says something else.
    async fn forget(
        &self,
        catalog: &dyn Catalog,
        configured: &watch::Receiver<RetentionConfig>,
        retention: RetentionConfig,
    ) -> Result<(), LedgerError> {
        let has_changed = || configured.has_changed().unwrap_or(true);
        let RetentionConfig {
            done,
            dead,
            cancelled,
            done_max,
            rate,
        } = retention;
        for (state, age, max) in [
            (State::Done, done, done_max),
            (State::Dead, dead, None),
            (State::Cancelled, cancelled, None),
        ] {
            if age.is_none() && max.is_none() {
                continue;
            }
            let surplus = match max {
                Some(max) => catalog.count_finished(state).await?.saturating_sub(max),
                None => 0,
            };
            let mut prune = Prune {
                state,
                age,
                surplus,
                after: None,
                limit: BATCH.min(rate),
                dry_run: false,
            };
            let mut forgotten = 0;
            loop {
                let Pruned {
                    rows,
                    surplus,
                    next,
                } = catalog.prune(&prune).await?;
                self.parts.metrics.pruned(state, rows);
                forgotten += rows;
                prune.surplus -= surplus;
                prune.after = next;
                let due = Duration::from_secs(rows) / rate;
                tokio::time::sleep(due.max(REST)).await;
                if next.is_none() || has_changed() {
                    break;
                }
            }
            if forgotten > 0 {
                tracing::info!(%state, rows = forgotten, "forgot finished tasks that were old enough");
            }
            if has_changed() {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// How long to wait between two looks.
fn every(retention: &RetentionConfig) -> Duration {
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
    fn what_is_kept_for_long_is_not_looked_for_often() {
        let config = |text: &str| crate::Config::from_toml(text).unwrap().retention;
        let seconds = |text: &str| every(&config(text)).as_secs();
        assert_eq!(seconds("retention.done = '60s'"), 10);
        assert_eq!(seconds("retention.done = '1h'"), 36);
        assert_eq!(seconds("retention.done = '7d'"), 600);
        assert_eq!(seconds("retention = { done = '7d', done_max = 5 }"), 60);
        assert_eq!(seconds("retention.done_max = 5"), 60);
    }
}
