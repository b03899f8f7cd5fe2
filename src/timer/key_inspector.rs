//! What programs do to keys: armed, armed again, deleted.
//!
//! An event only names a key, so it is looked at: whose value it has, and how long it has to live. One that falls due
//! soon is touched then, so that its event comes in time: a delay may be too short for any look-ahead to find its row.
//! For a key of ours that is all. A key of somebody else's is news for the engine.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::key_watch::{Change, KeyWatch, Noted, Place};
use super::nudge::Nudge;
use super::{AdoptionCandidate, ArmedPage, Cause, Seen, SignalSink};
use crate::clock::LedgerClock;
use crate::redis::{Found, Keyspace, RedisError, Role, Ttl, Value};
use crate::task::{Countdown, TaskKey, UnixMs};
use crate::telemetry::log::RateLimit;
use crate::telemetry::{DropReason, Metrics};

/// Keys looked at in one go.
const BATCH: usize = 1000;

/// How much later than its value says a key of ours may expire: a slow server carried the command out late. Otherwise
/// somebody gave it another expiry.
const CARRIED_OUT_LATE: Duration = Duration::from_secs(2);

/// How much sooner: so far apart are what two processes know of the ledger's clock.
const CLOCKS_APART: Duration = Duration::from_millis(250);

/// A server says in whole seconds for how long it has run.
const UPTIME_UNIT: Duration = Duration::from_secs(1);

/// How long to wait when Redis did not answer.
const OUTAGE_PAUSE: Duration = Duration::from_millis(200);

/// Keys that were said to be armed or disarmed: bounded, and coalesced by key.
#[derive(Debug)]
pub(super) struct Armings {
    keyspace: Keyspace,
    clock: LedgerClock,
    nudge: Arc<Nudge>,
    /// What falls due later is the look-ahead's.
    horizon: Duration,
    heard: Mutex<KeyWatch>,
    arrived: Notify,
    server: Mutex<Known>,
    metrics: Arc<Metrics>,
    warnings: RateLimit,
}

/// The server whose events are heard.
#[derive(Debug, Clone, Default)]
struct Known {
    run_id: Option<String>,
    /// Since when it is that one.
    since: UnixMs,
    /// When it took the place of another one, or came back.
    replaced: Option<UnixMs>,
}

impl Armings {
    pub(super) fn new(
        keyspace: Keyspace,
        clock: LedgerClock,
        nudge: Arc<Nudge>,
        horizon: Duration,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            keyspace,
            clock,
            nudge,
            horizon,
            heard: Mutex::default(),
            arrived: Notify::new(),
            server: Mutex::default(),
            metrics,
            warnings: RateLimit::every(Duration::from_secs(30)),
        }
    }

    /// A subscription was confirmed on this server: a deletion counts only while it is the same, and the master.
    pub(super) fn of_server(&self, run_id: Option<String>) {
        let mut server = self.server();
        if run_id.is_none() || server.run_id != run_id {
            let since = self.clock.now();
            *server = Known {
                replaced: server.run_id.as_ref().map(|_| since).or(server.replaced),
                run_id,
                since,
            };
        }
    }

    /// Since when the server has lost no data, asked after it was looked into; `None` if it does not say.
    async fn kept_since(&self) -> Result<Option<UnixMs>, RedisError> {
        let server = self.keyspace.server().await?;
        let now = self.clock.now();
        let known = self.server().clone();
        // Another one than the one whose events are heard: it may have come with anything.
        if known.run_id.is_some() && known.run_id != server.run_id {
            return Ok(None);
        }
        let started = server.uptime.map(|uptime| {
            let ago = i64::try_from(uptime.saturating_sub(UPTIME_UNIT).as_millis());
            UnixMs(now.0.saturating_sub(ago.unwrap_or(i64::MAX)))
        });
        Ok(started.map(|started| started.max(known.replaced.unwrap_or_default())))
    }

    /// An event, heard then, about a key that can be run here. Never blocks.
    pub(super) fn note(&self, key: TaskKey, change: Change, at: Instant, sink: &dyn SignalSink) {
        let noted = self.heard().note(key, change, at);
        match noted {
            Noted::Known => {}
            Noted::New => self.arrived.notify_one(),
            Noted::Full => {
                self.metrics.dropped(DropReason::ArmingOverflow, 1);
                sink.audit(Cause::Overflow);
            }
        }
    }

    /// A key has expired. If it was armed and nobody has seen it alive since, this is the only sign of that arming:
    /// its row may be finished, or due at another time.
    pub(super) fn expired(&self, key: &TaskKey, sink: &dyn SignalSink) {
        let gone_since = self.heard().expired(key);
        if let Some(since) = gone_since {
            self.never_seen(key.clone(), since, sink);
        }
    }

    fn never_seen(&self, key: TaskKey, since: Instant, sink: &dyn SignalSink) {
        let seen = Seen::Armed(Countdown::expired(self.clock.now(), self.moment_of(since)));
        sink.propose(AdoptionCandidate { key, seen });
    }

    /// An instant of this process, on the ledger's clock.
    fn moment_of(&self, instant: Instant) -> UnixMs {
        let ago = i64::try_from(instant.elapsed().as_millis()).unwrap_or(i64::MAX);
        UnixMs(self.clock.now().0.saturating_sub(ago))
    }

    /// Looks at keys now; `None` for one that is not armed.
    ///
    /// # Errors
    /// When Redis does not answer, or is not surely the server that it was then: it may have lost what was deleted.
    pub(super) async fn find(
        &self,
        keys: &[TaskKey],
        since: UnixMs,
    ) -> Result<Vec<Option<Countdown>>, RedisError> {
        let known = self.server().clone();
        let run_id = self.keyspace.server().await?.run_id;
        if run_id.is_none() || run_id != known.run_id || known.since > since {
            return Err(RedisError::silence());
        }
        let asked = self.clock.now();
        let found = self.keyspace.inspect(keys).await?;
        let answered = self.clock.now();
        let countdown = |found: Option<Found>| {
            let Found { value, ttl } = found?;
            let Ttl::Ms(left_ms) = ttl else { return None };
            Some(Countdown {
                due: answered.plus(Duration::from_millis(left_ms)),
                slack: answered.since(asked),
                alive_at: Some(asked),
                heard: None,
                kept_since: None,
                meant: value.meant(),
            })
        };
        Ok(found.into_iter().map(countdown).collect())
    }

    /// Inspects changed keys while the session lasts. Keys that wait at its end are inspected by the next session.
    pub(super) async fn inspect(&self, sink: &dyn SignalSink) -> Infallible {
        // Keys whose inspection was interrupted when the last session ended.
        self.heard().ask_again();
        loop {
            let batch = self.next_batch().await;
            let keys: Vec<TaskKey> = batch.iter().map(|(key, _)| key.clone()).collect();
            let asked = self.clock.now();
            match self.keyspace.inspect(&keys).await {
                Ok(found) => self.hand_in(batch, found, asked, sink).await,
                Err(error) => {
                    if let Some(held_back) = self.warnings.admit(error.reason()) {
                        let error = &error as &dyn std::error::Error;
                        tracing::warn!(
                            error,
                            held_back,
                            "cannot look at keys that were armed; the next audit finds them"
                        );
                    }
                    sink.audit(Cause::Overflow);
                    self.forget(&keys);
                    tokio::time::sleep(OUTAGE_PAUSE).await;
                }
            }
        }
    }

    /// Waits for keys, and takes a batch of them.
    async fn next_batch(&self) -> Vec<(TaskKey, Change)> {
        loop {
            let arrived = self.arrived.notified();
            let batch = self.heard().take(BATCH);
            if !batch.is_empty() {
                return batch;
            }
            arrived.await;
        }
    }

    async fn hand_in(
        &self,
        batch: Vec<(TaskKey, Change)>,
        found: Vec<Option<Found>>,
        asked: UnixMs,
        sink: &dyn SignalSink,
    ) {
        let answered = self.clock.now();
        let (mut soon, mut disarmed) = (Vec::new(), Vec::new());
        for ((key, change), found) in batch.into_iter().zip(found) {
            let place = self.heard().answer(&key);
            let (heard, deleted) = match place {
                Some(Place::Asked {
                    since, disarmed, ..
                }) => (self.moment_of(since), disarmed),
                _ => (asked, None),
            };
            let Some(Found { value, ttl }) = found else {
                continue;
            };
            match (ttl, change) {
                (Ttl::Ms(left_ms), _) => {
                    let due = answered.plus(Duration::from_millis(left_ms));
                    if due <= answered.plus(self.horizon) && sink.senior_listeners(&key) == 0 {
                        soon.push((key.clone(), due));
                    }
                    if value.is_of(due) {
                        sink.armed_by_us(&key);
                        // A program deleted its own, and an audit armed it again since.
                        if let Some(since) = deleted {
                            disarmed.push((key, self.moment_of(since)));
                        }
                        continue;
                    }
                    let seen = Seen::Armed(Countdown {
                        due,
                        slack: answered.since(asked),
                        alive_at: Some(asked),
                        heard: Some(heard),
                        kept_since: None,
                        meant: value.meant(),
                    });
                    sink.propose(AdoptionCandidate { key, seen });
                }
                (Ttl::Missing | Ttl::Forever, Change::Disarmed) => disarmed.push((key, heard)),
                (Ttl::Missing, Change::Armed) => match place {
                    Some(Place::Asked {
                        since,
                        expired: true,
                        ..
                    }) => self.never_seen(key, since, sink),
                    Some(Place::Asked {
                        since,
                        expired: false,
                        again: None,
                        ..
                    }) => self.heard().remember_gone(key, since),
                    _ => {}
                },
                // `SET` without an expiry came after it: nobody knows what that means.
                (Ttl::Forever, Change::Armed) => self.metrics.dropped(DropReason::Lasting, 1),
            }
        }
        self.nudge.touch(soon);
        if !disarmed.is_empty() {
            self.hand_in_disarmed(disarmed, sink).await;
        }
        // What was said of them meanwhile.
        if self.heard().are_waiting() {
            self.arrived.notify_one();
        }
    }

    /// A replica, a demoted master and a server that hands its keys to another say `del` too.
    async fn hand_in_disarmed(&self, keys: Vec<(TaskKey, UnixMs)>, sink: &dyn SignalSink) {
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
        for (key, heard) in keys {
            let seen = Seen::Disarmed(heard);
            sink.propose(AdoptionCandidate { key, seen });
        }
    }

    fn forget(&self, keys: &[TaskKey]) {
        let mut heard = self.heard();
        for key in keys {
            heard.answer(key);
        }
    }

    /// A page of the keys that others armed and that are wanted: found, not heard.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub(super) async fn scan(
        &self,
        cursor: u64,
        wants: &(dyn for<'a> Fn(&'a TaskKey) -> bool + Send + Sync),
    ) -> Result<ArmedPage, RedisError> {
        let mut page = self.keyspace.scan(cursor).await?;
        page.keys.retain(|key| wants(key));
        // Of most keys, which are ours, no more is asked than that.
        let mut ours = self.keyspace.are_ours(&page.keys).await?.into_iter();
        page.keys.retain(|_| ours.next() == Some(false));
        let asked = self.clock.now();
        let found = self.keyspace.inspect(&page.keys).await?;
        let answered = self.clock.now();
        let kept_since = match found.is_empty() {
            true => None,
            false => self.kept_since().await?,
        };
        let armed = |(key, found): (TaskKey, Option<Found>)| match found? {
            // One of ours that somebody gave another expiry cannot be told from one whose server's clock was set.
            Found {
                value: Value::Foreign,
                ttl: Ttl::Ms(left_ms),
            } => Some(AdoptionCandidate {
                key,
                seen: Seen::Armed(Countdown {
                    due: answered.plus(Duration::from_millis(left_ms)),
                    slack: answered.since(asked),
                    alive_at: Some(asked),
                    heard: None,
                    kept_since,
                    meant: None,
                }),
            }),
            _ => None,
        };
        Ok(ArmedPage {
            foreign: page.keys.into_iter().zip(found).filter_map(armed).collect(),
            next: page.next,
        })
    }

    fn heard(&self) -> MutexGuard<'_, KeyWatch> {
        self.heard
            .lock()
            .expect("nothing panics while holding what was heard")
    }

    fn server(&self) -> MutexGuard<'_, Known> {
        self.server.lock().expect("nothing panics while holding it")
    }
}

impl Value {
    /// Whether it is ours, and the key expires when its value says.
    fn is_of(self, due: UnixMs) -> bool {
        match self {
            Self::Ours(meant) => {
                due.since(meant) <= CARRIED_OUT_LATE && meant.since(due) <= CLOCKS_APART
            }
            Self::Foreign => false,
        }
    }

    /// The due time of one of ours.
    fn meant(self) -> Option<UnixMs> {
        match self {
            Self::Ours(meant) => Some(meant),
            Self::Foreign => None,
        }
    }
}
