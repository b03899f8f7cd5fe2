//! The scan for keys that programs armed.

use std::time::Duration;

use tokio::time::timeout;

use super::KeyInspector;
use crate::{Found, RedisError, Ttl, Value};
use lapsed_core::task::{Countdown, TaskKey, UnixMs};
use lapsed_core::timer::{AdoptionCandidate, ArmedPage, Seen};

/// Resolution of the uptime that a server reports.
const UPTIME_UNIT: Duration = Duration::from_secs(1);

/// How long a scan waits for events that were published before. After that it is repeated later.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(10);

impl KeyInspector {
    /// Reads a page of keys that other programs armed and that `wants` accepts. The events about their arming are
    /// handled by then: heard later, they would seem to be about a newer arming.
    ///
    /// # Errors
    /// If Redis does not answer, or if too many events wait.
    pub(in crate::timer) async fn scan(
        &self,
        cursor: u64,
        wants: &(dyn for<'a> Fn(&'a TaskKey) -> bool + Send + Sync),
    ) -> Result<ArmedPage, RedisError> {
        let mut page = self.keyspace.scan(cursor).await?;
        page.keys.retain(|key| wants(key));
        // Most keys were armed by lapsed; their remaining time is not needed.
        let mut ours = self.keyspace.are_ours(&page.keys).await?.into_iter();
        page.keys.retain(|_| ours.next() == Some(false));
        if !page.keys.is_empty() {
            self.catch_up().await?;
        }
        let asked = self.clock.now();
        let found = self.keyspace.inspect(&page.keys).await?;
        let inspection = self.answered(asked);
        let kept_since = match found.is_empty() {
            true => None,
            false => self.kept_since().await?,
        };
        let armed = |(key, found): (TaskKey, Option<Found>)| match found? {
            // For a key of lapsed, a changed expiry looks the same as a changed clock of the server.
            Found {
                value: Value::Foreign,
                ttl: Ttl::Ms(left_ms),
            } => {
                let seen = Seen::Armed(Countdown {
                    kept_since,
                    ..inspection.countdown(left_ms)
                });
                Some(AdoptionCandidate::of_key(key, seen))
            }
            _ => None,
        };
        Ok(ArmedPage {
            foreign: page.keys.into_iter().zip(found).filter_map(armed).collect(),
            overdue: Vec::new(),
            taken: Vec::new(),
            next: page.next,
        })
    }

    /// Waits until the events published so far are handled.
    ///
    /// # Errors
    /// If the session ends meanwhile, or if that takes longer than [`CATCH_UP_TIMEOUT`].
    async fn catch_up(&self) -> Result<(), RedisError> {
        let mut session = self.backlog.subscribe();
        let Some(backlog) = session.borrow_and_update().clone() else {
            return Ok(());
        };
        let caught_up = async {
            tokio::select! {
                () = backlog.caught_up() => Ok(()),
                _ = session.changed() => Err(RedisError::silence()),
            }
        };
        let caught_up = timeout(CATCH_UP_TIMEOUT, caught_up).await;
        caught_up.unwrap_or_else(|_| Err(RedisError::silence()))
    }

    /// Returns since when the server has not lost data and its clock has run like the ledger's, or `None` if that is
    /// unknown. Call it after the inspection.
    async fn kept_since(&self) -> Result<Option<UnixMs>, RedisError> {
        let (server, alike_since) = self.check_clocks().await?;
        let now = self.clock.now();
        let known = self.server().clone();
        // A different server than the one whose events are heard may hold any data.
        if known.run_id.is_some() && known.run_id != server.run_id {
            return Ok(None);
        }
        let started = server.uptime.map(|uptime| {
            let ago = i64::try_from(uptime.saturating_sub(UPTIME_UNIT).as_millis());
            UnixMs(now.0.saturating_sub(ago.unwrap_or(i64::MAX)))
        });
        let kept = started.zip(alike_since);
        Ok(kept.map(|(started, alike)| started.max(alike).max(known.replaced.unwrap_or_default())))
    }
}
