//! Claim stage: finds out which signalled tasks are due, and claims them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout};

use super::activity::Activity;
use super::candidates::Candidates;
use super::entries::EntryRemover;
use super::execute::Claimed;
use super::expired::adopt_expired;
use super::health::LedgerHealth;
use super::lease_watch::LeaseWatch;
use super::lifecycle::Lifecycle;
use super::negative_cache::NegativeCache;
use super::pauses::PauseWatch;
use super::queue::SignalQueue;
use super::queue::class::SignalClass;
use super::queue::permits::Permits;
use super::queue::route_load::RoutePermit;
use super::queue::route_queue::Dequeued;
use super::rearm::Rearmer;
use super::reports::{Reporter, TaskClaimed};
use super::spans::Contexts;
use super::suspects::Suspects;
use super::undelete::{Undeleter, may_be_armed_again};
use crate::clock::LedgerClock;
use crate::config::PullConfig;
use crate::handler::{Route, Router};
use crate::ledger::{Claim, Claimant, Claims, Lease, LedgerError, Lookup, Settlement};
use crate::membership::Ownership;
use crate::task::{Arming, State, TaskKey, UnixMs, Verdict};
use crate::telemetry::DropReason;
use crate::timer::{Alarm, Cause, Signal, Source, Timer};
use crate::trace::Tracer;

/// From this number of daemons on, each daemon makes one claim of fresh signals at a time. Two at a time would each be
/// small, and many ledger sessions would wait for the same pages.
const MANY_MEMBERS: usize = 3;

/// Maximum time that a claim waits for another claim of this daemon.
const CLAIM_TURN_WAIT: Duration = Duration::from_millis(100);

/// Maximum lag of the ledger's clock behind this daemon's estimate of it. A task that fell due less than this ago and
/// could not be claimed may not have been due by the ledger's clock.
const CLOCK_ERROR_MAX: Duration = Duration::from_millis(100);

/// Delay before such a claim is repeated.
const CLAIM_AGAIN_AFTER: Duration = Duration::from_millis(5);

/// Pause before the next claim when the ledger does not answer.
const OUTAGE_PAUSE: Duration = Duration::from_millis(500);

/// The claim stage: turns signals into claims.
pub struct Claimer {
    pub claims: Arc<dyn Claims>,
    pub clock: LedgerClock,
    pub health: Arc<LedgerHealth>,
    pub claimant: Claimant,
    pub timer: Arc<dyn Timer>,
    pub rearmer: Arc<Rearmer>,
    pub entries: EntryRemover,
    pub undeleter: Arc<Undeleter>,
    pub router: Arc<Router>,
    pub ownership: Arc<Ownership>,
    pub suspects: Arc<Suspects>,
    pub queue: Arc<SignalQueue>,
    pub pauses: Arc<PauseWatch>,
    pub candidates: Arc<Candidates>,
    pub lease_watch: Arc<LeaseWatch>,
    pub sweep: Arc<Activity>,
    pub lifecycle: Lifecycle,
    pub reporter: Arc<Reporter>,
    pub tracer: Option<Arc<dyn Tracer>>,
    /// Keys of recent signals that have no row.
    pub without_row: NegativeCache,
    /// Serializes claims of fresh signals where many daemons share the ledger. Has one permit.
    pub turn: Semaphore,
}

/// By key: the route, its permit, and the source of the signal.
type Routes = HashMap<TaskKey, (Route, RoutePermit, Source)>;

/// The claimant of pulled tasks. It does not name this process: the worker keeps its claim when the process ends.
fn pull_claimant(pull: &PullConfig) -> Claimant {
    Claimant {
        daemon: format!("pull:{}", pull.queue),
        lease: pull.visibility,
    }
}

impl Claimer {
    /// Where many daemons share the ledger, waits until no other claim of fresh signals is under way, at most
    /// [`CLAIM_TURN_WAIT`]: the other claim may wait for a locked row.
    pub async fn turn(&self, class: SignalClass) -> Option<SemaphorePermit<'_>> {
        if class != SignalClass::Fresh || self.ownership.members() < MANY_MEMBERS {
            return None;
        }
        let turn = timeout(CLAIM_TURN_WAIT, self.turn.acquire()).await;
        turn.ok()?.ok()
    }

    /// Claims the tasks of these signals that are due and not paused. The ledger resolves keys to rows, and decides.
    /// Returns the claims, each with one of the `permits`, and the signals whose tasks seemed due but could not be claimed.
    pub async fn claim(
        &self,
        taken: Vec<Dequeued>,
        permits: &mut Permits,
    ) -> Result<(Vec<Claimed>, Vec<Signal>), LedgerError> {
        let began = Instant::now();
        let (mut routes, signals) = self.skip_rowless(taken);
        let (mut due, by_key): (Vec<Signal>, Vec<Signal>) = signals
            .into_iter()
            .partition(|signal| !self.needs_look_up(signal));
        due.extend(
            self.look_up_due(by_key)
                .await?
                .into_iter()
                .map(|(signal, _)| signal),
        );
        // Only after the look-up: a key without a row is adopted, paused or not.
        self.drop_paused(&mut due);
        let held_back = self.suspects.hold_back(&mut due);
        self.reporter
            .metrics
            .dropped(DropReason::Held, held_back as u64);
        self.entries.take(&mut due).await?;
        if due.is_empty() {
            return Ok((Vec::new(), Vec::new()));
        }
        let claims = self.claim_due(&due, &routes).await?;
        self.entries.retake(&due, &claims).await;
        self.reporter.metrics.claimed("won", claims.len() as u64);
        self.reporter
            .metrics
            .claimed("missed", (due.len() - claims.len()) as u64);
        let (mut claimed, mut strays) = (Vec::with_capacity(claims.len()), Vec::new());
        for claim in claims {
            let Some((route, permit, source)) = routes.remove(&claim.key) else {
                strays.push(claim.lease);
                continue;
            };
            TaskClaimed { source }.emit(&self.reporter);
            claimed.push(Claimed {
                permits: permits
                    .split(permit)
                    .expect("at most as many claims as signals, and as many signals as slots"),
                contexts: Contexts::claimed(self.tracer.as_deref(), &claim, &route, began),
                claim,
                route,
            });
        }
        self.release(strays).await;
        due.retain(|signal| routes.contains_key(&signal.key));
        Ok((claimed, due))
    }

    /// Releases claims of other tasks than those that were signalled: their rows have the ids of rows that were deleted, as
    /// after a `TRUNCATE`. The sweep finds them.
    async fn release(&self, leases: Vec<Lease>) {
        let settlement = |lease| Settlement {
            lease,
            verdict: Verdict::GiveBack,
        };
        let settlements: Vec<Settlement> = leases.into_iter().map(settlement).collect();
        if settlements.is_empty() {
            return;
        }
        tracing::warn!(
            tasks = settlements.len(),
            "claimed rows whose ids belonged to other tasks before: releasing them"
        );
        if let Err(error) = self.claims.settle(&settlements).await {
            self.health.log_failure("release tasks", &error);
        }
    }

    /// Claims the tasks of these signals, in one statement for this process and one for each pull queue.
    async fn claim_due(&self, due: &[Signal], routes: &Routes) -> Result<Vec<Claim>, LedgerError> {
        let mut batches: HashMap<Option<&PullConfig>, Vec<Arming>> = HashMap::new();
        for signal in due {
            let route = routes.get(&signal.key);
            let pull = route.and_then(|(route, ..)| route.pull.as_ref());
            let batch = batches.entry(pull).or_default();
            batch.extend(signal.arming);
        }
        let (mut claims, mut failed) = (Vec::with_capacity(due.len()), None);
        for (pull, armings) in batches {
            let claimant = match pull {
                None => self.claimant.clone(),
                Some(pull) => pull_claimant(pull),
            };
            match self.claims.claim(&armings, &claimant).await {
                Ok(claimed) => claims.extend(claimed),
                Err(error) => failed = Some(error),
            }
        }
        match failed {
            Some(error) if claims.is_empty() => Err(error),
            Some(error) => {
                // The others count as missed, and are checked again.
                self.health.failed("claim tasks", &error);
                Ok(claims)
            }
            None => Ok(claims),
        }
    }

    /// Returns route, permit and source of each key. Leaves out keys that are known to have no row.
    fn skip_rowless(&self, taken: Vec<Dequeued>) -> (Routes, Vec<Signal>) {
        let mut routes = HashMap::with_capacity(taken.len());
        let mut signals = Vec::with_capacity(taken.len());
        for Dequeued {
            signal,
            route,
            permit,
        } in taken
        {
            if self.is_rowless(&signal) {
                continue;
            }
            let entry = (route, permit, signal.source);
            if routes.insert(signal.key.clone(), entry).is_none() {
                signals.push(signal);
            }
        }
        (routes, signals)
    }

    /// True if a signal names a key that is known to have no row. Such a signal is counted as dropped.
    fn is_rowless(&self, signal: &Signal) -> bool {
        let is_rowless = signal.arming.is_none() && self.without_row.contains(&signal.key);
        if is_rowless {
            self.reporter.metrics.dropped(DropReason::Unknown, 1);
        }
        is_rowless
    }

    /// Counts the signals that could not be claimed by reason, and arms early tasks again. A claim that was a few
    /// milliseconds early by the ledger's own clock is repeated shortly. Any other due task that could not be claimed,
    /// such as a row that another session has locked, is checked again in a second.
    pub async fn account_for(&self, missed: Vec<Signal>) {
        let still_due = match self.look_up_due(missed).await {
            Ok(still_due) => still_due,
            Err(error) => return self.health.failed("look up tasks", &error),
        };
        let now = self.clock.now();
        let (just_due, locked): (Vec<_>, Vec<_>) = still_due
            .into_iter()
            .partition(|(_, due_at)| now.since(*due_at) < CLOCK_ERROR_MAX);
        let locked = locked.iter().filter_map(|(signal, _)| signal.arming);
        self.lease_watch
            .check_again(locked.map(|arming| arming.row), now);
        let soon = just_due
            .into_iter()
            .map(|(Signal { key, arming, .. }, _)| Alarm {
                key,
                due: now.plus(CLAIM_AGAIN_AFTER),
                arming,
            });
        let soon: Vec<Alarm> = soon.collect();
        if !soon.is_empty() {
            self.timer.expect(soon);
        }
    }

    /// Looks up the rows of these keys. Returns the due signals with their armings and due times, arms early tasks
    /// again, and counts the others by reason.
    async fn look_up_due(
        &self,
        signals: Vec<Signal>,
    ) -> Result<Vec<(Signal, UnixMs)>, LedgerError> {
        if signals.is_empty() {
            return Ok(Vec::new());
        }
        let keys: Vec<TaskKey> = signals.iter().map(|signal| signal.key.clone()).collect();
        let lookups = self.claims.look_up(&keys).await?;
        let now = self.clock.now();
        let (mut due, mut early, mut without_row) = (Vec::new(), Vec::new(), Vec::new());
        for (signal, lookup) in signals.into_iter().zip(lookups) {
            let Some(lookup) = lookup else {
                without_row.extend(self.adoptable_key(signal));
                continue;
            };
            let Lookup {
                arming,
                state,
                due_at,
                deleted,
                cancelling: _,
                older_run: _,
                interrupted: _,
                origin: _,
                stamp: _,
            } = lookup;
            let is_event = signal.source == Source::Event;
            let published = signal.published.clone().or(is_event.then_some(now..=now));
            if deleted && published.is_some_and(|at| may_be_armed_again(arming.due, &at)) {
                self.undeleter.start(signal.key, arming);
                continue;
            }
            let arming = Some(arming);
            let signal = Signal { arming, ..signal };
            match state {
                _ if deleted => self.reporter.metrics.dropped(DropReason::Deleted, 1),
                State::Running => self.reporter.metrics.dropped(DropReason::Running, 1),
                State::Done | State::Dead => self.reporter.metrics.dropped(DropReason::Finished, 1),
                State::Cancelled => self.reporter.metrics.dropped(DropReason::Cancelled, 1),
                State::Pending | State::Waiting if due_at > now => early.push(Alarm {
                    key: signal.key,
                    due: due_at,
                    arming,
                }),
                State::Pending | State::Waiting => due.push((signal, due_at)),
            }
        }
        self.adopt_expired(without_row, Duration::ZERO);
        self.reporter
            .metrics
            .dropped(DropReason::Early, early.len() as u64);
        // The event of a key whose own arming waits for its row: that decides, and not what the row still says.
        early.retain(|alarm| !self.candidates.expedite(&alarm.key));
        self.rearmer.rearm(early);
        Ok(due)
    }

    /// Returns the key of a signal without a row if the key is to be adopted.
    fn adoptable_key(&self, signal: Signal) -> Option<TaskKey> {
        let Signal {
            key,
            source,
            arming,
            published: _,
        } = signal;
        // The row of a signal that names its arming was deleted. A signal that is no event comes from an entry that
        // outlived its row.
        let has_no_arming = arming.is_none();
        if has_no_arming && source == Source::Event && self.router.adopts(&key) {
            return Some(key);
        }
        self.reporter.metrics.dropped(DropReason::Unknown, 1);
        if has_no_arming {
            self.without_row.insert(key);
        }
        None
    }

    /// Waits after a failed claim. The sweep finds the tasks when the ledger answers again, except those whose key
    /// expired before its row was written: these become adoption candidates.
    pub async fn wait_out(&self, error: &LedgerError, keys: &[TaskKey], events: Vec<TaskKey>) {
        self.health.failed("claim tasks", error);
        let adopts = |key: &TaskKey| self.router.adopts(key);
        self.adopt_expired(events.into_iter().filter(adopts), OUTAGE_PAUSE);
        self.queue.finish(keys);
        let pause = tokio::time::sleep(OUTAGE_PAUSE);
        self.lifecycle.stopping.run_until_cancelled(pause).await;
        self.sweep.activate(Cause::Overflow);
    }

    /// Processes signals that were set aside as a worker does, but without taking starts for them. A key without a row
    /// is adopted, a paused or held task is left alone, and any other signal returns to the queue.
    pub async fn process_set_aside(&self, signals: Vec<Signal>) {
        let keys: Vec<TaskKey> = signals.iter().map(|signal| signal.key.clone()).collect();
        let events = signals
            .iter()
            .filter(|signal| signal.source == Source::Event);
        let events: Vec<TaskKey> = events.map(|signal| signal.key.clone()).collect();
        let (mut due, mut by_key): (Vec<Signal>, Vec<Signal>) = signals
            .into_iter()
            .partition(|signal| !self.needs_look_up(signal));
        by_key.retain(|signal| !self.is_rowless(signal));
        match self.look_up_due(by_key).await {
            Ok(found) => due.extend(found.into_iter().map(|(signal, _)| signal)),
            Err(error) => return self.wait_out(&error, &keys, events).await,
        }
        self.drop_paused(&mut due);
        self.queue.finish(&keys);
        due.into_iter()
            .for_each(|signal| self.queue.put_back(signal));
    }

    /// True if a signal names no row; or if its task is paused, and the event of its key may say that an older program has
    /// created the task again: no other event says so when the pause ends.
    fn needs_look_up(&self, signal: &Signal) -> bool {
        signal.arming.is_none()
            || signal.published.is_some() && self.pauses.blocks(signal).is_some()
    }

    /// Drops the signals of paused tasks. The sweep finds these tasks when they may start.
    fn drop_paused(&self, due: &mut Vec<Signal>) {
        let before = due.len();
        due.retain(|signal| self.pauses.blocks(signal).is_none());
        let paused = (before - due.len()) as u64;
        if paused > 0 {
            self.reporter.metrics.dropped(DropReason::Paused, paused);
        }
    }

    /// Adopts expired keys without a row: their arming was not heard, or is not written yet. The adopter writes their
    /// rows and then signals them; the caller does not wait for that. Keys for which there is no room are looked up again.
    pub fn adopt_expired(&self, keys: impl IntoIterator<Item = TaskKey>, wait: Duration) {
        let now = self.clock.now();
        let refused = adopt_expired(&self.candidates, keys, now, wait);
        self.queue.list_expired(refused);
    }
}
