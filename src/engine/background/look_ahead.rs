//! Look-ahead: keeps in memory the tasks that fall due in the next seconds, so that the timer can be exact about them.
//!
//! Each row is read once, when the horizon reaches it. The near part of the horizon is read again in each pass, because
//! rows are created and moved in place; of a known row, only the index entry is read. Where several daemons share the
//! tasks, each reads the rows of its own buckets, and keeps rows that it has read and no longer owns.

mod probe;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::clock::LedgerClock;
use crate::config::NudgeConfig;
use crate::engine::activity::Activity;
use crate::engine::health::LedgerHealth;
use crate::engine::pace::jittered;
use crate::engine::undelete::Undeleter;
use crate::handler::Router;
use crate::ledger::{DueScan, LedgerError, Scans, Upcoming, Window};
use crate::membership::{OwnerSet, Ownership};
use crate::task::{KeyBuckets, UnixMs};
use crate::timer::{Alarm, Cause, Timer};

/// Minimum span that each pass reads again. It covers at least the time until the next pass.
const NEAR: Duration = Duration::from_secs(2);

/// Maximum number of known rows: with more rows in the horizon, the look-ahead reads less far. The timer keeps a few
/// more, which it learns of by itself.
const KNOWN_MAX: usize = 150_000;

/// Rows of one page, and index entries of one page.
const PAGE: u32 = 1_000;
const INDEX_PAGE: u32 = 10_000;

/// The known rows, and how far they reach.
#[derive(Debug)]
struct Ahead {
    known: HashMap<u64, KnownRow>,
    /// The last row read, in the order of due times.
    edge: Option<(UnixMs, u64)>,
    /// The buckets of which every row up to the edge is known.
    read: KeyBuckets,
    /// The buckets that may contain this daemon's tasks.
    own: KeyBuckets,
    /// The daemons among which the tasks are divided.
    division: OwnerSet,
    /// The number of the reload that the routes come from.
    reloads: u64,
    /// When the division or the routes changed last.
    changed: Instant,
    /// When tasks due now are looked for next.
    probe_at: Instant,
    /// The state of the ledger, as [`unsignalled_changes`](crate::ledger::Scans::unsignalled_changes) tells it, of which every row
    /// that is due before the next pass is known. While it lasts, no probe finds anything.
    probed: Option<u64>,
}

/// A known row.
#[derive(Debug)]
struct KnownRow {
    due: UnixMs,
    /// Passed to the timer if this daemon comes to own the task and to have a route for it.
    deferred: Option<Alarm>,
}

/// Has the timer expect the tasks that fall due in the next seconds.
pub struct LookAhead {
    pub scans: Arc<dyn Scans>,
    pub clock: LedgerClock,
    pub health: Arc<LedgerHealth>,
    pub timer: Arc<dyn Timer>,
    pub router: Arc<Router>,
    pub ownership: Arc<Ownership>,
    pub undeleter: Arc<Undeleter>,
    pub nudge: NudgeConfig,
    /// How often tasks that are due now are looked for; `None`: the timer hears of them.
    pub probe: Option<Duration>,
    /// `sweep.interval`.
    pub interval: Duration,
    pub activity: Arc<Activity>,
}

impl LookAhead {
    /// Looks ahead every `sweep.interval`, and at once when activated. Runs beside the sweep and not behind it: a
    /// backlog must not delay tasks that fall due now.
    pub async fn run(self) {
        let activity = &self.activity;
        let (mut ahead, mut cause) = (Ahead::default(), Cause::Start);
        loop {
            let began = Instant::now();
            let pass = async {
                let state = self.unsignalled_changes().await?;
                self.look_ahead(&mut ahead).await?;
                self.probe_after_pass(&mut ahead, state).await
            };
            if let Err(error) = activity.pass(cause, pass).await {
                self.health.failed("look ahead", &error);
            }
            let interval = jittered(self.interval);
            cause = self.probe_until(&mut ahead, began + interval).await;
        }
    }

    async fn look_ahead(&self, ahead: &mut Ahead) -> Result<(), LedgerError> {
        let horizon = self.nudge.horizon;
        if self.nudge.enabled {
            self.reassign(ahead);
            let now = self.clock.now();
            let back = self.known_back();
            ahead.known.retain(|_, row| row.due.plus(back) > now);
            let near = NEAR.max(self.interval.saturating_mul(2)).min(horizon);
            self.read_gained(ahead).await?;
            self.read_new(ahead, near).await?;
            ahead.shrink();
            self.extend(ahead, now.plus(near), horizon).await?;
        }
        self.undeleter.undelete_armed(horizon).await?;
        Ok(())
    }

    /// After a change of ownership or routes, passes known rows that are now ours to the timer. Reads nothing.
    fn reassign(&self, ahead: &mut Ahead) {
        let (division, reloads) = (self.ownership.owner_set(), self.router.reloads());
        if division == ahead.division && reloads == ahead.reloads {
            return;
        }
        (ahead.division, ahead.reloads) = (division, reloads);
        ahead.changed = Instant::now();
        ahead.probed = None;
        ahead.own = self.ownership.own_buckets();
        let known = ahead.known.values_mut();
        let ours = known.filter_map(|row| row.deferred.take_if(|alarm| self.is_ours(alarm)));
        let ours: Vec<Alarm> = ours.collect();
        if !ours.is_empty() {
            self.timer.expect(ours);
        }
    }

    /// Reads the rows of newly owned buckets up to the edge.
    async fn read_gained(&self, ahead: &mut Ahead) -> Result<(), LedgerError> {
        let gained = ahead.own.without(&ahead.read);
        if gained.is_empty() {
            // A member that is full at times gives up and takes back its tasks every few seconds. The read buckets
            // shrink only after the rows known at the last change have fallen due, so that no row is read twice.
            if ahead.changed.elapsed() >= self.nudge.horizon && ahead.read != ahead.own {
                ahead.read = ahead.own.clone();
            }
            return Ok(());
        }
        if let Some((edge, _)) = ahead.edge {
            let span = edge.since(self.clock.now());
            if let Some(reached) = self.read_within(ahead, &gained, span).await? {
                ahead.edge = ahead.edge.min(Some(reached));
            }
        }
        ahead.read = ahead.read.with(&gained);
        Ok(())
    }

    /// Reads new rows within `span`.
    async fn read_new(&self, ahead: &mut Ahead, span: Duration) -> Result<(), LedgerError> {
        let buckets = ahead.read.clone();
        self.read_within(ahead, &buckets, span).await?;
        Ok(())
    }

    /// Reads unknown rows of these buckets within `span`. Returns the position reached if there was no room for more.
    async fn read_within(
        &self,
        ahead: &mut Ahead,
        buckets: &KeyBuckets,
        span: Duration,
    ) -> Result<Option<(UnixMs, u64)>, LedgerError> {
        let mut after = None;
        loop {
            let scan = DueScan {
                window: Window::Ahead(span),
                after,
                limit: INDEX_PAGE,
            };
            let known = |row: u64, due: UnixMs| ahead.contains(row, due);
            let page = self.scans.scan_new(scan, buckets, &known).await?;
            after = page.next;
            self.expect_rows(ahead, page.rows);
            self.probe_if_due(ahead).await;
            if after.is_none() || ahead.known.len() > KNOWN_MAX {
                return Ok(after);
            }
        }
    }

    /// Reads the rows that the horizon has reached since the last pass, as far as there is room.
    async fn extend(
        &self,
        ahead: &mut Ahead,
        near_end: UnixMs,
        horizon: Duration,
    ) -> Result<(), LedgerError> {
        let mut after = ahead.edge.max(Some((near_end, 0)));
        let reads_all = ahead.read.is_all();
        while ahead.known.len() < KNOWN_MAX {
            let end = self.clock.now().plus(horizon);
            let scan = DueScan {
                window: Window::Ahead(horizon),
                after,
                limit: PAGE,
            };
            let page = if reads_all {
                self.scans.scan(scan).await?
            } else {
                let known = |row: u64, due: UnixMs| ahead.contains(row, due);
                let scanned = self.scans.scan_new(scan, &ahead.read, &known);
                scanned.await?
            };
            after = page.next;
            self.expect_rows(ahead, page.rows);
            self.probe_if_due(ahead).await;
            ahead.edge = Some(after.unwrap_or((end, 0)));
            if after.is_none() {
                break;
            }
        }
        Ok(())
    }

    fn expect_rows(&self, ahead: &mut Ahead, rows: Vec<Upcoming>) {
        let mut ours = Vec::new();
        for row in rows {
            let (row, alarm) = (row.arming.row, Alarm::from(row));
            let due = alarm.due;
            let deferred = match self.is_ours(&alarm) {
                true => {
                    ours.push(alarm);
                    None
                }
                false => Some(alarm),
            };
            ahead.known.insert(row, KnownRow { due, deferred });
        }
        if !ours.is_empty() {
            self.timer.expect(ours);
        }
    }

    /// True if this daemon owns the task and has a route for it.
    fn is_ours(&self, alarm: &Alarm) -> bool {
        self.ownership.owns(&alarm.key) && self.router.find(&alarm.key).is_some()
    }
}

impl Default for Ahead {
    fn default() -> Self {
        Self {
            known: HashMap::new(),
            edge: None,
            read: KeyBuckets::none(),
            own: KeyBuckets::all(),
            division: OwnerSet::default(),
            reloads: 0,
            changed: Instant::now(),
            probe_at: Instant::now(),
            probed: None,
        }
    }
}

impl Ahead {
    fn contains(&self, row: u64, due: UnixMs) -> bool {
        self.known.get(&row).is_some_and(|known| known.due == due)
    }

    /// Forgets the rows furthest ahead if there are more than [`KNOWN_MAX`]. They are read again when they are near.
    fn shrink(&mut self) {
        if self.known.len() <= KNOWN_MAX {
            return;
        }
        let mut positions: Vec<(UnixMs, u64)> = self
            .known
            .iter()
            .map(|(row, known)| (known.due, *row))
            .collect();
        let (_, edge, _) = positions.select_nth_unstable(KNOWN_MAX - 1);
        let edge = *edge;
        self.known.retain(|row, known| (known.due, *row) <= edge);
        self.edge = Some(edge);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_furthest_ahead_are_forgotten_above_the_bound() {
        let mut ahead = Ahead::default();
        let due = |row: u64| UnixMs(i64::try_from(row / 2).unwrap());
        let known = |row| KnownRow {
            due: due(row),
            deferred: None,
        };
        ahead.known = (0..KNOWN_MAX as u64 + 3)
            .map(|row| (row, known(row)))
            .collect();
        ahead.shrink();
        let last = KNOWN_MAX as u64 - 1;
        assert_eq!(ahead.known.len(), KNOWN_MAX);
        assert_eq!(ahead.edge, Some((due(last), last)));
        ahead.shrink();
        assert_eq!(ahead.known.len(), KNOWN_MAX);
    }
}
