//! Marks: proof that the sets have lost no data.
//!
//! A missing entry means that a program removed it, unless the server lost the entry. So each set has a mark among its
//! entries, with the score `inf`. It names the server process, and is lost with the data: by `FLUSHALL`, by `DEL` of the
//! set, by a restart, by a failover. Then a new mark *awaits* an audit, which writes all missing entries; once it has
//! ended, the mark is *kept*, and absence is evidence.
//!
//! A row may be written after that audit whose entry was read before the loss. So the register has the time of the loss,
//! until a later audit has reported what is missing: of the rows from that time, absence is no evidence, and their entries
//! are written again.
//!
//! The mark holds the nonce of the register, too. So it counts only for daemons with the settings with which it was
//! written, and only while they are alone: a daemon with other settings sees other entries.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;

use crate::alarms::SetEntries;
use crate::{Held, Keyspace, RedisError};
use lapsed_core::task::{Removal, UnixMs};
use lapsed_core::telemetry::log::LogLimiter;
use lapsed_core::timer::{Cause, SignalSink};

const KEPT: &str = "kept:";
const AWAITS: &str = "awaits:";

/// Delay before an audit that has not ended is requested again.
const REQUESTED_AGAIN_AFTER: Duration = Duration::from_secs(120);

/// How long after an audit has reported a missing entry it is written, or its task is cancelled.
const WRITTEN_WITHIN: Duration = Duration::from_secs(10);

/// What a mark says.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Mark {
    /// The set has kept its data since an audit.
    Kept,
    /// An audit that begins at this time or later makes it kept.
    Awaits(UnixMs),
    /// None, or one of another server process, or of other settings.
    Lost,
}

impl Mark {
    fn read(text: Option<&str>, holder: &str) -> Self {
        let Some(text) = text else {
            return Self::Lost;
        };
        if text.strip_prefix(KEPT) == Some(holder) {
            return Self::Kept;
        }
        let awaits = text.strip_prefix(AWAITS);
        let awaits = awaits.and_then(|rest| rest.strip_prefix(holder)?.strip_prefix(':'));
        match awaits.and_then(|ms| ms.parse().ok()) {
            Some(ms) => Self::Awaits(UnixMs(ms)),
            None => Self::Lost,
        }
    }

    fn kept(holder: &str) -> String {
        format!("{KEPT}{holder}")
    }

    fn awaits(holder: &str, now: UnixMs) -> String {
        format!("{AWAITS}{holder}:{}", now.0)
    }
}

/// Reads and writes the marks of all sets.
#[derive(Debug)]
pub(super) struct Marks {
    requested: Mutex<Option<Instant>>,
    /// The latest loss of data, and when the audit ended that has reported what is missing since.
    settled: Mutex<Option<(i64, Instant)>>,
    /// Limits log lines about daemons with other settings.
    shared: LogLimiter,
}

impl Default for Marks {
    fn default() -> Self {
        Self {
            requested: Mutex::default(),
            settled: Mutex::default(),
            shared: LogLimiter::every(Duration::from_secs(600)),
        }
    }
}

/// What a mark has to name: the server process, and the nonce of the register.
fn holder(run_id: &str, nonce: &str) -> String {
    format!("{run_id}:{nonce}")
}

impl Marks {
    /// Marks sets that have lost their data, and requests an audit for them.
    pub(super) async fn check(
        &self,
        entries: &SetEntries,
        run_id: &str,
        now: UnixMs,
        sink: &dyn SignalSink,
    ) -> Result<(), RedisError> {
        let Some(Held { nonce, lost_ms }) = entries.scored().hold().await? else {
            if let Some(held_back) = self.shared.admit("shared sets") {
                tracing::warn!(
                    held_back,
                    "daemons with other `sorted_set.keys` or `sorted_set.member` use this ledger: until they have stopped, a program cancels no task by removing its entry"
                );
            }
            return Ok(());
        };
        let holder = &holder(run_id, &nonce);
        let marks = entries.scored().marks(entries.sets()).await?;
        let (mut lost, mut awaits) = (0, 0);
        let anew = Mark::awaits(holder, now);
        for (set, mark) in entries.sets().iter().zip(marks) {
            match Mark::read(mark.as_deref(), holder) {
                Mark::Kept => {}
                Mark::Awaits(_) => awaits += 1,
                Mark::Lost => {
                    let lost_now = Some(now.0);
                    entries.scored().mark(set, &anew, None, lost_now).await?;
                    lost += 1;
                }
            }
        }
        let settled = self.settled().filter(|(ms, _)| Some(*ms) == lost_ms);
        if let Some((lost_ms, at)) = settled
            && at.elapsed() >= WRITTEN_WITHIN
        {
            entries.scored().forget_loss(lost_ms).await?;
        }
        let again = match (awaits, lost_ms) {
            (0, Some(_)) if settled.is_none() => Some(Removal::UNCONFIRMED_FOR),
            (0, _) => None,
            _ => Some(REQUESTED_AGAIN_AFTER),
        };
        let mut requested = self.requested();
        let is_time = |again| requested.is_none_or(|at: Instant| at.elapsed() >= again);
        let cause = match lost {
            // An audit that runs goes on, however long it takes: it may be the one that is awaited.
            0 if again.is_some_and(is_time) => Cause::Interval,
            0 => return Ok(()),
            _ => Cause::RedisChanged,
        };
        *requested = Some(Instant::now());
        sink.audit(cause);
        Ok(())
    }

    /// Keeps the marks that an audit has satisfied, which began at `began`.
    pub(super) async fn audited(
        &self,
        entries: &SetEntries,
        keyspace: &Keyspace,
        began: UnixMs,
    ) -> Result<(), RedisError> {
        let Some(run_id) = keyspace.server().await?.run_id else {
            return Ok(());
        };
        let Some(Held { nonce, lost_ms }) = entries.scored().held().await? else {
            return Ok(());
        };
        let holder = holder(&run_id, &nonce);
        let marks = entries.scored().marks(entries.sets()).await?;
        for (set, mark) in entries.sets().iter().zip(marks) {
            if let Some(mark) = mark
                && let Mark::Awaits(since) = Mark::read(Some(&mark), &holder)
                && since <= began
            {
                let kept = Mark::kept(&holder);
                entries.scored().mark(set, &kept, Some(&mark), None).await?;
            }
        }
        let is_settled =
            |ms: &i64| began.0.abs_diff(*ms) > Removal::UNCONFIRMED_FOR.as_millis() as u64;
        if let Some(lost_ms) = lost_ms.filter(is_settled) {
            let mut settled = self.settled();
            if settled.is_none_or(|(ms, _)| ms != lost_ms) {
                *settled = Some((lost_ms, Instant::now()));
            }
        }
        Ok(())
    }

    fn settled(&self) -> MutexGuard<'_, Option<(i64, Instant)>> {
        self.settled
            .lock()
            .expect("nothing panics while holding the time of an audit")
    }

    fn requested(&self) -> MutexGuard<'_, Option<Instant>> {
        self.requested
            .lock()
            .expect("nothing panics while holding the time of a request")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_counts_for_its_server_process_only() {
        let read = |text: &str| Mark::read(Some(text), "abc");
        assert_eq!(read(&Mark::kept("abc")), Mark::Kept);
        let awaits = Mark::awaits("abc", UnixMs(7));
        assert_eq!(read(&awaits), Mark::Awaits(UnixMs(7)));
        for lost in [
            "kept:abcd",
            "kept:ab",
            "awaits:abd:7",
            "awaits:abc:x",
            "",
            "x",
        ] {
            assert_eq!(read(lost), Mark::Lost, "{lost}");
        }
        assert_eq!(Mark::read(None, "abc"), Mark::Lost);
    }
}
