//! Inspection of keys that programs armed or disarmed.
//!
//! An event carries only a key, so `GETRANGE` and `PTTL` read its value and remaining time. A key that expires soon is
//! touched when it does, so that its `expired` event is published on time; its delay may be too short for a look-ahead
//! to find the row. A key armed by lapsed needs nothing more. A key armed by another program is reported to the engine
//! as an adoption candidate.

mod clocks;
mod scan;

use std::convert::Infallible;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{Notify, watch};

use super::key_watch::{Change, Expiry, KeyWatch, LatestChange, Noted, Receipt};
use super::nudge::Nudge;
use super::{AdoptionCandidate, Cause, EngineSink, Seen};
use crate::{Backlog, Found, Holds, Keyspace, LedgerName, RedisError, Role, Ttl, Value};
use lapsed_core::clock::LedgerClock;
use lapsed_core::task::{ADOPTION_CLOCK_ERROR_MAX, Countdown, Removal, TaskKey, UnixMs};
use lapsed_core::telemetry::log::LogLimiter;
use lapsed_core::telemetry::{DropReason, Metrics};

/// Most keys inspected in one batch.
const BATCH: usize = 1000;

/// How much later than the due time in its value a key of lapsed may expire, if the server executed the command late. A
/// larger difference means that a program changed the expiry.
const EXECUTED_LATE_MAX: Duration = Duration::from_secs(2);

/// How much earlier it may expire: the clocks of two processes differ by at most this much.
const CLOCK_ERROR_MAX: Duration = Duration::from_millis(250);

/// Longest delay of an adopted task for the error of the clock. The error of a clock that was never read is unknown.
const UNCERTAINTY_MAX: Duration = Duration::from_secs(60);

/// Pause after an inspection that Redis did not answer.
const OUTAGE_PAUSE: Duration = Duration::from_millis(200);

/// Inspects keys that were armed or disarmed. Bounded, one entry for each key.
#[derive(Debug)]
pub(super) struct KeyInspector {
    keyspace: Keyspace,
    ledger: LedgerName,
    clock: LedgerClock,
    nudge: Arc<Nudge>,
    /// The look-ahead finds what falls due later.
    horizon: Duration,
    watch: Mutex<KeyWatch>,
    arrived: Notify,
    server: Mutex<EventServer>,
    /// The events of the current session.
    backlog: watch::Sender<Option<Backlog>>,
    metrics: Arc<Metrics>,
    warnings: LogLimiter,
}

/// When keys were inspected, on the ledger's clock as far as this daemon knows it.
#[derive(Debug, Clone, Copy)]
struct Inspection {
    asked: UnixMs,
    answered: UnixMs,
    /// Error of the clock, beyond what adoption tolerates.
    uncertainty: Duration,
}

impl Inspection {
    /// Returns the countdown of a key with this remaining time. It never ends before the key expires, however coarse the
    /// latest reading of the clock was.
    fn countdown(&self, left_ms: u64) -> Countdown {
        let latest = self.answered.plus(self.uncertainty);
        let earliest = self.asked.minus(self.uncertainty);
        Countdown {
            due: latest.plus(Duration::from_millis(left_ms)),
            tolerance: latest.since(earliest),
            alive_at: Some(earliest),
            heard: None,
            late: false,
            kept_since: None,
            meant: None,
        }
    }
}

/// The server whose events are received.
#[derive(Debug, Clone, Default)]
struct EventServer {
    run_id: Option<String>,
    /// When it was first seen.
    since: UnixMs,
    /// When it last replaced another server, restarted, or got keys of another master.
    replaced: Option<UnixMs>,
    /// When it last got keys of another master of its cluster.
    gained: Option<UnixMs>,
}

impl EventServer {
    /// True if this server was first seen after `heard`. Unknown of one that does not tell its run id.
    fn is_younger_than(&self, heard: UnixMs) -> bool {
        self.run_id.is_some() && self.since > heard
    }
}

impl KeyInspector {
    pub(super) fn new(
        keyspace: Keyspace,
        ledger: LedgerName,
        clock: LedgerClock,
        nudge: Arc<Nudge>,
        horizon: Duration,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            keyspace,
            ledger,
            clock,
            nudge,
            horizon,
            watch: Mutex::default(),
            arrived: Notify::new(),
            server: Mutex::default(),
            backlog: watch::Sender::new(None),
            metrics,
            warnings: LogLimiter::every(Duration::from_secs(30)),
        }
    }

    /// Notes the server of a confirmed subscription. A deletion counts only if it was heard from this server, and while
    /// it is a master.
    pub(super) fn set_server(&self, run_id: Option<String>) {
        let mut server = self.server();
        if run_id.is_none() || server.run_id != run_id {
            let since = self.clock.now();
            *server = EventServer {
                replaced: server.run_id.as_ref().map(|_| since).or(server.replaced),
                gained: server.gained,
                run_id,
                since,
            };
        }
    }

    /// Notes that slots of another master have moved to this one: what it has may be older than it.
    pub(super) fn gained_keys(&self) {
        let now = self.clock.now();
        let mut server = self.server();
        (server.replaced, server.gained) = (Some(now), Some(now));
    }

    /// Sets the events of the current session; `None` at its end.
    pub(super) fn set_backlog(&self, backlog: Option<Backlog>) {
        self.backlog.send_replace(backlog);
    }

    /// Queues a key for inspection. Never blocks.
    pub(super) fn note(
        &self,
        key: TaskKey,
        change: Change,
        receipt: Receipt,
        sink: &dyn EngineSink,
    ) {
        let noted = self.watch().note(key, change, receipt);
        match noted {
            Noted::Known => {}
            Noted::New => self.arrived.notify_one(),
            Noted::Full => {
                self.metrics.dropped(DropReason::ArmingOverflow, 1);
                sink.audit(Cause::Overflow);
            }
        }
    }

    /// Handles an `expired` event. If the key was armed and gone at its inspection, the event is the only sign of that
    /// arming: its row may be finished, or due at another time.
    pub(super) fn expired(&self, key: &TaskKey, sink: &dyn EngineSink) {
        let gone_since = self.watch().expired(key);
        if let Some(since) = gone_since {
            self.report_unseen(key.clone(), since, sink);
        }
    }

    /// Reports a key that was armed and expired before its inspection. If the event was late, another daemon may have
    /// adopted the key, and the task may have run: only what was surely published after that counts.
    fn report_unseen(&self, key: TaskKey, armed: Receipt, sink: &dyn EngineSink) {
        let seen = Seen::Armed(Countdown {
            late: armed.late_since.is_some(),
            ..Countdown::expired(self.clock.now(), self.heard(armed))
        });
        sink.propose(AdoptionCandidate::of_key(key, seen));
    }

    /// Returns when an event was received, or when a late one may have been published at the earliest.
    fn heard(&self, receipt: Receipt) -> UnixMs {
        *self.published(receipt).start()
    }

    /// Returns the earliest and the latest time at which an event may have been published. The small delay of one that
    /// is not late does not count.
    pub(super) fn published(&self, receipt: Receipt) -> RangeInclusive<UnixMs> {
        let Receipt { at, late_since } = receipt;
        let received = self.clock.at(at);
        late_since.unwrap_or(received)..=received
    }

    /// Notes that the answer to an inspection has just arrived.
    fn answered(&self, asked: UnixMs) -> Inspection {
        Inspection {
            asked,
            answered: self.clock.now(),
            uncertainty: self
                .clock
                .error()
                .saturating_sub(ADOPTION_CLOCK_ERROR_MAX)
                .min(UNCERTAINTY_MAX),
        }
    }

    /// Inspects keys at once. Returns `None` for each key that is not armed.
    ///
    /// # Errors
    /// If Redis does not answer, or if it may have been replaced since `since`: its data would then prove nothing.
    pub(super) async fn find(
        &self,
        keys: &[TaskKey],
        since: UnixMs,
    ) -> Result<Vec<Option<Countdown>>, RedisError> {
        let known = self.server().clone();
        let run_id = self.keyspace.server().await?.run_id;
        let whole_since = known.since.max(known.gained.unwrap_or_default());
        if run_id.is_none() || run_id != known.run_id || whole_since > since {
            return Err(RedisError::silence());
        }
        let asked = self.clock.now();
        let found = self.keyspace.inspect(keys).await?;
        let inspection = self.answered(asked);
        let countdown = |found: Option<Found>| {
            let Found { value, ttl } = found?;
            let Ttl::Ms(left_ms) = ttl else { return None };
            Some(Countdown {
                meant: value.due(),
                ..inspection.countdown(left_ms)
            })
        };
        Ok(found.into_iter().map(countdown).collect())
    }

    /// Inspects changed keys while the session lasts. Keys left over at its end are inspected by the next session.
    pub(super) async fn inspect(&self, sink: &dyn EngineSink) -> Infallible {
        self.resume(sink);
        loop {
            let batch = self.next_batch().await;
            let keys: Vec<TaskKey> = batch.iter().map(|(key, _)| key.clone()).collect();
            let asked = self.clock.now();
            match self.keyspace.inspect(&keys).await {
                Ok(found) => self.report(batch, found, asked, sink).await,
                Err(error) => {
                    if let Some(held_back) = self.warnings.admit(error.reason()) {
                        let error = &error as &dyn std::error::Error;
                        tracing::warn!(error, held_back, "cannot inspect armed keys");
                    }
                    sink.audit(Cause::Overflow);
                    match error.is_transient() {
                        true => self.watch().requeue_inspected(),
                        false => self.forget(&keys),
                    }
                    tokio::time::sleep(OUTAGE_PAUSE).await;
                }
            }
        }
    }

    /// Resumes after the last session, whose end interrupted an inspection. Events since then are lost: a key that is
    /// missing now may have expired meanwhile.
    fn resume(&self, sink: &dyn EngineSink) {
        let gone = {
            let mut watch = self.watch();
            watch.requeue_inspected();
            watch.events_lost()
        };
        gone.into_iter()
            .for_each(|(key, armed)| self.report_missed(key, armed, sink));
    }

    /// Reports a key that was armed and is missing, although no `expired` event arrived. Counts only without a row. If its
    /// server was replaced or restarted since, the key may be missing because its data is, long before its due time.
    fn report_missed(&self, key: TaskKey, armed: Receipt, sink: &dyn EngineSink) {
        if self.server().is_younger_than(self.heard(armed)) {
            tracing::debug!(task.key = %key, "redis has lost this key, or let it expire, before it was read");
            return self.metrics.dropped(DropReason::Unverified, 1);
        }
        let seen = Seen::Expired(self.clock.now());
        sink.propose(AdoptionCandidate::of_key(key, seen));
    }

    /// Waits for changed keys, and takes a batch of them.
    async fn next_batch(&self) -> Vec<(TaskKey, Change)> {
        loop {
            let arrived = self.arrived.notified();
            let batch = self.watch().take(BATCH);
            if !batch.is_empty() {
                return batch;
            }
            arrived.await;
        }
    }

    async fn report(
        &self,
        batch: Vec<(TaskKey, Change)>,
        found: Vec<Option<Found>>,
        asked: UnixMs,
        sink: &dyn EngineSink,
    ) {
        let inspection = self.answered(asked);
        let answered = inspection.answered;
        let (mut soon, mut disarmed) = (Vec::new(), Vec::new());
        for ((key, change), found) in batch.into_iter().zip(found) {
            let inspected = self.watch().finish(&key);
            let (Some(inspected), Some(Found { value, ttl })) = (inspected, found) else {
                continue;
            };
            let since = inspected.since;
            match (ttl, change) {
                (Ttl::Ms(left_ms), _) => {
                    let due = answered.plus(Duration::from_millis(left_ms));
                    if due <= answered.plus(self.horizon) && sink.listener_rank(&key) == 0 {
                        soon.push((key.clone(), due));
                    }
                    if expires_as_armed(value, due) {
                        // A program deleted the key; an audit has armed it again since. In a cluster, the key has more likely moved.
                        if let Some(since) = inspected.last_disarmed()
                            && self.keyspace.commands().cluster().is_none()
                        {
                            disarmed.push((key, self.clock.at(since)));
                        }
                        continue;
                    }
                    let seen = Seen::Armed(Countdown {
                        heard: Some(self.heard(since)),
                        late: since.late_since.is_some(),
                        meant: value.due(),
                        ..inspection.countdown(left_ms)
                    });
                    sink.propose(AdoptionCandidate::of_key(key, seen));
                }
                (Ttl::Missing | Ttl::Forever, Change::Disarmed) => {
                    disarmed.push((key, self.clock.at(since.at)))
                }
                (Ttl::Missing, Change::Armed) => self.report_missing(key, inspected, sink),
                // A later `SET` without an expiry: its meaning is unknown.
                (Ttl::Forever, Change::Armed) => self.metrics.dropped(DropReason::Lasting, 1),
            }
        }
        self.nudge.touch(soon);
        if !disarmed.is_empty() {
            self.report_disarmed(disarmed, sink).await;
        }
        // Changes during the inspection are inspected next.
        if self.watch().has_waiting() {
            self.arrived.notify_one();
        }
    }

    /// Handles a key that was armed and is missing at its inspection.
    fn report_missing(&self, key: TaskKey, armed: LatestChange, sink: &dyn EngineSink) {
        match armed.expiry {
            Expiry::Heard => self.report_unseen(key, armed.since, sink),
            Expiry::NotHeard => self.watch().remember_gone(key, armed.since),
            Expiry::MayBeLost => self.report_missed(key, armed.since, sink),
        }
    }

    /// Reports deletions, unless the server is no longer the master that was subscribed to: a replica, a demoted master
    /// and a server that migrates its keys publish `del`, too.
    async fn report_disarmed(&self, keys: Vec<(TaskKey, UnixMs)>, sink: &dyn EngineSink) {
        let expected = self.server().run_id.clone();
        let is_the_same = match self.keyspace.server().await {
            Ok(server) => {
                server.role == Some(Role::Master) && expected.is_some() && server.run_id == expected
            }
            Err(_) => false,
        };
        if !is_the_same {
            self.metrics
                .dropped(DropReason::Unverified, keys.len() as u64);
            return;
        }
        // A master whose slots move publishes `del` for each key that is elsewhere by then.
        let names: Vec<TaskKey> = keys.iter().map(|(key, _)| key.clone()).collect();
        let oldest = keys.iter().map(|(_, heard)| *heard).min();
        let age = oldest.map_or(Duration::ZERO, |heard| self.clock.now().since(heard));
        let held = self.keyspace.holds(&names, age).await;
        let held = held.unwrap_or_else(|_| vec![Holds::Nothing; keys.len()]);
        let missing = match held.contains(&Holds::WithAnother) {
            true => self.are_missing(&names).await,
            false => vec![true; keys.len()],
        };
        let mut unproved = 0;
        for (((key, heard), held), is_missing) in keys.into_iter().zip(held).zip(missing) {
            let is_deleted = match held {
                Holds::All => true,
                Holds::WithAnother => is_missing,
                Holds::Nothing => false,
            };
            match is_deleted {
                true => {
                    let seen = Seen::Disarmed(Removal::at(heard));
                    sink.propose(AdoptionCandidate::of_key(key, seen));
                }
                false => unproved += 1,
            }
        }
        self.metrics.dropped(DropReason::Unverified, unproved);
    }

    /// Returns for each key whether it is missing once more: on both nodes between which its slot is moving, as was just
    /// proved.
    async fn are_missing(&self, keys: &[TaskKey]) -> Vec<bool> {
        let found = self.keyspace.inspect(keys).await;
        let found = found.unwrap_or_else(|_| vec![None; keys.len()]);
        let is_missing =
            |found: &Option<Found>| found.as_ref().is_some_and(|it| it.ttl == Ttl::Missing);
        found.iter().map(is_missing).collect()
    }

    fn forget(&self, keys: &[TaskKey]) {
        let mut heard = self.watch();
        for key in keys {
            heard.finish(key);
        }
    }

    fn watch(&self) -> MutexGuard<'_, KeyWatch> {
        self.watch
            .lock()
            .expect("nothing panics while holding the key watch")
    }

    fn server(&self) -> MutexGuard<'_, EventServer> {
        self.server
            .lock()
            .expect("nothing panics while holding the server")
    }
}

/// True if lapsed wrote the value and the key expires at the due time in it.
fn expires_as_armed(value: Value, expires: UnixMs) -> bool {
    value.due().is_some_and(|due| {
        expires.since(due) <= EXECUTED_LATE_MAX && due.since(expires) <= CLOCK_ERROR_MAX
    })
}
