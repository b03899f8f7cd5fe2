//! Recovery: finds the leases of dead daemons, so that their tasks run again.
//!
//! A scan finds the leases. They are ended at once if the process is known to be gone, else watched until they expire.
//! So a task starts again soon after its lease, without waiting for the sweep.
//!
//! A scan reads every row once that is due, or will be within the length of a lease: behind the run of a dead daemon another
//! arming may wait. It runs at start, when a member vanished, after an outage of the ledger, and by one
//! member once in a lease: never each second.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use crate::clock::LedgerClock;
use crate::engine::activity::Activity;
use crate::engine::claimant::Processes;
use crate::engine::health::LedgerHealth;
use crate::engine::lease::Leases;
use crate::engine::lease_watch::{Check, LeaseWatch, RETRY_AFTER};
use crate::engine::queue::SignalQueue;
use crate::engine::queue::class::SignalClass;
use crate::engine::queue::fair::Refused;
use crate::handler::Router;
use crate::ledger::{Claims, FoundLease, LedgerError, Scans, Upcoming};
use crate::membership::Ownership;
use crate::task::{Arming, UnixMs};
use crate::timer::{Cause, Signal, Source};

/// Maximum number of daemon names that one scan checks.
const NAMES_MAX: usize = 1_000;

/// Rest between two checks.
const CHECK_PAUSE: Duration = Duration::from_millis(50);

/// Delay after a lease's end before it is checked.
const MARGIN: Duration = Duration::from_millis(50);

/// Time for which members leave a task to its owner.
const OWNER_GRACE: Duration = Duration::from_secs(1);

/// Delay and number of repeated scans after dead daemons were found: a statement of a dead daemon may still have been
/// on its way when its leases were read.
const RESCAN_AFTER: Duration = Duration::from_secs(2);
const RESCANS_MAX: u32 = 2;

/// Scans without a request take at most one part in this many of the time.
const SCAN_SHARE: u32 = 20;

/// Recovers the tasks of dead daemons.
pub struct Recovery {
    pub claims: Arc<dyn Claims>,
    pub scans: Arc<dyn Scans>,
    pub clock: LedgerClock,
    pub health: Arc<LedgerHealth>,
    pub router: Arc<Router>,
    pub ownership: Arc<Ownership>,
    /// Length of a lease.
    pub lease: Duration,
    pub lease_scan: Arc<Activity>,
    pub lease_checks: Arc<Activity>,
    pub queue: Arc<SignalQueue>,
    pub leases: Arc<Leases>,
    pub watch: Arc<LeaseWatch>,
    pub processes: Processes,
}

impl Recovery {
    /// Scans for leases and checks those that expire.
    pub async fn run(self) {
        tokio::join!(self.scan_leases(), self.watch_leases());
    }

    async fn scan_leases(&self) {
        let activity = &self.lease_scan;
        let (mut rescans, mut cause) = (0, Cause::Start);
        loop {
            let began = Instant::now();
            let scanned = activity.pass(cause, self.scan_leases_once(cause)).await;
            let rest = match scanned {
                Ok(true) if rescans < RESCANS_MAX => {
                    rescans += 1;
                    RESCAN_AFTER
                }
                Ok(_) => {
                    rescans = 0;
                    cause = self.next_scan(began.elapsed()).await;
                    continue;
                }
                Err(error) => {
                    self.health
                        .failed("look for leases of dead daemons", &error);
                    RETRY_AFTER
                }
            };
            sleep(rest).await;
        }
    }

    /// Waits until a scan is requested or the next regular scan is due. One member does the regular scans for all.
    async fn next_scan(&self, took: Duration) -> Cause {
        sleep(took.max(RETRY_AFTER).min(self.lease / 4)).await;
        let interval = self.lease.max(took * SCAN_SHARE);
        loop {
            let cause = self.lease_scan.next(interval).await;
            if cause != Cause::Interval || self.ownership.is_first() {
                return cause;
            }
        }
    }

    /// Scans the leases of all rows that are due, or soon will be: with rests if the scan is a regular one. Returns true if some leases belong to
    /// dead daemons.
    async fn scan_leases_once(&self, cause: Cause) -> Result<bool, LedgerError> {
        let mut gone = HashMap::new();
        let mut ended = 0;
        let mut found_dead = false;
        let mut after = None;
        // What was armed behind a run waits for its lease, which lasts no longer than this.
        let ahead = self.lease;
        loop {
            let began = Instant::now();
            let page = self.scans.scan_leases(after, ahead).await?;
            let own = self.leases.claims();
            let (dead, others): (Vec<FoundLease>, Vec<FoundLease>) = page
                .leases
                .into_iter()
                .filter(|lease| !own.contains(&(lease.row, lease.owner)))
                .partition(|lease| self.is_gone(&lease.daemon, &mut gone));
            let at_end = |lease: &FoundLease| (lease.until.plus(MARGIN), lease.row, Check::First);
            // Leases of dead daemons are watched, too: their rows may be locked now.
            self.watch.watch(others.iter().chain(&dead).map(at_end));
            if !dead.is_empty() {
                found_dead = true;
                ended += self.claims.end_leases(&dead).await?;
                let now = self.clock.now();
                let rows = dead.iter().map(|lease| (now, lease.row, Check::First));
                self.watch.watch(rows);
            }
            after = page.next;
            if after.is_none() {
                break;
            }
            if cause == Cause::Interval {
                sleep(began.elapsed()).await;
            }
        }
        if ended > 0 {
            let dead = gone.iter().filter(|(_, gone)| **gone);
            let daemons: Vec<&str> = dead.map(|(name, _)| name.as_str()).collect();
            tracing::warn!(
                leases = ended,
                daemons = daemons.join(" "),
                "ended the leases of daemons whose process is gone: their tasks run again"
            );
        }
        Ok(found_dead)
    }

    /// True if the process of this daemon is gone. The result is cached for this scan.
    fn is_gone(&self, daemon: &str, known: &mut HashMap<String, bool>) -> bool {
        if let Some(gone) = known.get(daemon) {
            return *gone;
        }
        if known.len() >= NAMES_MAX {
            return false;
        }
        let gone = self.processes.is_gone(daemon);
        known.insert(daemon.to_owned(), gone);
        gone
    }

    async fn watch_leases(&self) {
        let activity = &self.lease_checks;
        loop {
            let changed = self.watch.changed();
            let Some(next) = self.watch.next() else {
                changed.await;
                continue;
            };
            let wait = next.since(self.clock.now());
            let _ = timeout(wait, changed).await;
            let now = self.clock.now();
            let taken = self.watch.take(now);
            if !taken.is_empty() {
                let checked = activity
                    .pass(Cause::Work, self.check_leases(&taken, now))
                    .await;
                let again = checked.unwrap_or_else(|error| {
                    self.health.failed("check expired leases", &error);
                    again_soon(&taken, now)
                });
                if !again.is_empty() {
                    self.watch.watch(again);
                }
            }
            sleep(CHECK_PAUSE).await;
        }
    }

    /// Signals the rows due for a check that are free. Rows still leased belong to another run. Returns the next checks.
    async fn check_leases(
        &self,
        taken: &HashMap<u64, Check>,
        now: UnixMs,
    ) -> Result<Vec<(UnixMs, u64, Check)>, LedgerError> {
        let asked = Instant::now();
        if self.health.owners_come_first().await? {
            return Ok(again_soon(taken, now));
        }
        let rows: Vec<u64> = taken.keys().copied().collect();
        let free = self.scans.claimable(&rows).await?;
        if self.health.answered_late(asked) {
            return Ok(again_soon(taken, now));
        }
        let postponed = free.into_iter().filter_map(|row| {
            let check = taken.get(&row.arming.row).copied()?;
            self.signal_free(row, check, now)
        });
        Ok(postponed.collect())
    }

    /// Signals the task of a dead daemon, unless the task's owner is to do so first. Returns the next check, if any.
    fn signal_free(
        &self,
        row: Upcoming,
        check: Check,
        now: UnixMs,
    ) -> Option<(UnixMs, u64, Check)> {
        let Upcoming {
            key,
            arming: arming @ Arming { row, .. },
            due_at,
        } = row;
        if !self.router.runs(&key) {
            return None;
        }
        if check == Check::First && !self.ownership.owns(&key) {
            return Some((now.plus(OWNER_GRACE), row, Check::Second));
        }
        let class = SignalClass::of_overdue(now.since(due_at));
        let signal = Signal::new(key, Source::Sweep, Some(arming));
        match self.queue.push_as(class, signal) {
            Err(Refused::Full) => Some((now.plus(RETRY_AFTER), row, check)),
            // If the route is blocked, the task waits in the route's backlog.
            Err(Refused::Blocked) | Ok(()) => None,
        }
    }
}

/// Checks of the same rows a moment later.
fn again_soon(taken: &HashMap<u64, Check>, now: UnixMs) -> Vec<(UnixMs, u64, Check)> {
    let later = now.plus(RETRY_AFTER);
    let again = taken.iter().map(|(row, check)| (later, *row, *check));
    again.collect()
}
