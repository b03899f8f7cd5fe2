//! Sessions: one connection to Redis each, from connecting to its loss. A session looks at the sets when they change.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::inbox::Inbox;
use super::near::Near;
use super::state::State;
use super::writing::Writing;
use crate::{Connected, Loss, NotifyFlags, RedisError, Role, Subscription, notify_flags};
use lapsed_core::task::RetryPolicy;
use lapsed_core::timer::{AdoptionSink, Cause};

/// Pause between two looks if no events come.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The same if events come: each change is heard of, and the near entries reach further than this.
const LOOK_EVERY_WITH_EVENTS: Duration = Duration::from_millis(500);

/// Shortest pause between two looks, and per entry that was read: a look at many entries that wait for their adoption
/// is not repeated at once.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_PER_ENTRY: Duration = Duration::from_micros(20);

/// Shortest time between two passes over the near entries, and per entry that was read.
const NEAR_PAUSE_MIN: Duration = Duration::from_millis(20);
const NEAR_PAUSE_PER_ENTRY: Duration = Duration::from_micros(50);

/// Time between two checks of role, marks and flags.
const CHECK_EVERY: Duration = Duration::from_secs(5);

/// Time between two audits, without any other cause: they find entries of ended tasks, and, where no events come,
/// entries that programs removed.
const AUDIT_EVERY: Duration = Duration::from_secs(900);

/// Backoff between sessions: up to 5 s.
const RECONNECT: RetryPolicy =
    RetryPolicy::endless(Duration::from_millis(100), Duration::from_secs(4));

/// A session that lasted this long is followed by the next one at once.
const STABLE_AFTER: Duration = Duration::from_secs(10);

/// Runs sessions, one after the other.
pub(super) struct Sessions {
    state: Arc<State>,
    /// True while a session reads the sets.
    up: AtomicBool,
    /// True while events of the sets arrive.
    hears: AtomicBool,
    /// True if a program has removed an entry since the last audit was requested.
    removed: AtomicBool,
    /// When the engine may be asked for the next audit because of removed entries.
    audits: Audits,
}

/// Spaces audits that removed entries cause, so that they take a tenth of the time at most.
#[derive(Default)]
struct Audits(std::sync::Mutex<Option<Instant>>);

impl Audits {
    fn are_due(&self) -> bool {
        self.next().is_none_or(|next| Instant::now() >= next)
    }

    fn rest(&self, duration: Duration) {
        *self.next() = Some(Instant::now() + duration);
    }

    fn next(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.0.lock().expect("nothing panics while holding a time")
    }
}

impl Sessions {
    pub(super) fn new(state: Arc<State>) -> Self {
        Self {
            state,
            up: AtomicBool::new(false),
            hears: AtomicBool::new(false),
            removed: AtomicBool::new(false),
            audits: Audits::default(),
        }
    }

    /// True while a session reads the sets.
    pub(super) fn is_up(&self) -> bool {
        self.up.load(Ordering::Relaxed)
    }

    /// Marks the session as ended.
    pub(super) fn stopped(&self) {
        self.set_up(false);
    }

    /// Notes that an audit took this long.
    pub(super) fn audited_within(&self, duration: Duration) {
        const BETWEEN_MIN: Duration = Duration::from_secs(30);
        self.audits.rest(BETWEEN_MIN.max(duration * 10));
    }

    /// Runs sessions forever.
    pub(super) async fn run(&self, sink: &dyn AdoptionSink) {
        self.set_up(false);
        let (mut failures, mut sessions) = (0u16, 0u64);
        let mut near = Near::new(Arc::clone(&self.state));
        loop {
            let began = Instant::now();
            let ended = self.session(sink, &mut near, sessions > 0).await;
            if self.is_up() {
                sessions += 1;
            }
            self.set_up(false);
            self.hears.store(false, Ordering::Relaxed);
            match ended {
                Ok(loss) => {
                    tracing::warn!(redis.node = self.state.node(), reason = %loss, "lost the connection to the sorted sets");
                }
                Err(error) => self.state.warn(
                    "cannot read the sorted sets: tasks run from the ledger alone meanwhile",
                    &error,
                ),
            }
            failures = match began.elapsed() >= STABLE_AFTER {
                true => 1,
                false => failures.saturating_add(1),
            };
            let endpoint = self.state.keyspace.commands().endpoint();
            sleep(endpoint.pause_after(failures, &RECONNECT)).await;
        }
    }

    /// Runs one session. Returns how its connection was lost.
    async fn session(
        &self,
        sink: &dyn AdoptionSink,
        near: &mut Near,
        again: bool,
    ) -> Result<Loss, RedisError> {
        let state = &self.state;
        let mut connected = Connected::open(state.keyspace.commands().endpoint()).await?;
        state.keyspace.commands().forget_failures();
        self.check(sink).await?;
        match connected.subscribe_keys(state.entries.sets()).await {
            Ok(()) => {}
            Err(error) if error.is_refusal() => state.warn(
                "may not subscribe to the events of the sorted sets: looking at them every 100 ms",
                &error,
            ),
            Err(error) => return Err(error),
        }
        self.set_up(true);
        if again {
            state.metrics.resubscribed();
        }
        // What happened before is not known.
        sink.sweep(Cause::Subscribed);
        sink.audit(Cause::Subscribed);
        tokio::select! {
            loss = self.listen(connected.subscription().0) => Ok(loss),
            ended = self.look(sink, near) => ended,
            ended = self.recheck(sink) => ended,
        }
    }

    async fn listen(&self, subscription: Subscription) -> Loss {
        let event = |_: &str, event: &[u8]| {
            self.state.metrics.event_received();
            self.hears.store(true, Ordering::Relaxed);
            if event == b"zrem" {
                self.removed.store(true, Ordering::Relaxed);
            }
            self.state.changed.notify_one();
        };
        subscription.receive(event).await
    }

    /// Looks at the sets whenever they change, and from time to time.
    async fn look(&self, sink: &dyn AdoptionSink, near: &mut Near) -> Result<Loss, RedisError> {
        let state = &self.state;
        let mut inbox = Inbox::new(Arc::clone(state));
        let (mut near_at, mut is_notified) = (Instant::now(), true);
        loop {
            let began = Instant::now();
            let look = inbox.look(sink).await?;
            if began >= near_at {
                let read = near.pass(sink).await?;
                near_at = began + NEAR_PAUSE_MIN.max(pause(NEAR_PAUSE_PER_ENTRY, read));
            }
            if !is_notified && look.new > 0 {
                // No event told of it: events do not arrive.
                self.hears.store(false, Ordering::Relaxed);
            }
            if self.removed.load(Ordering::Relaxed) && self.audits.are_due() {
                self.removed.store(false, Ordering::Relaxed);
                sink.audit(Cause::Asked);
            }
            // Entries that are none of this daemon cause no other work.
            let work = look.read - look.quiet + look.quiet / 20;
            sleep_until(began + PAUSE_MIN.max(pause(PAUSE_PER_ENTRY, work))).await;
            if !look.unfinished {
                let every = match self.hears.load(Ordering::Relaxed) {
                    true => LOOK_EVERY_WITH_EVENTS,
                    false => LOOK_EVERY,
                };
                is_notified = timeout(every, state.changed.notified()).await.is_ok();
            }
        }
    }

    /// Checks role, marks and flags, again and again.
    async fn recheck(&self, sink: &dyn AdoptionSink) -> Result<Loss, RedisError> {
        let mut audited = Instant::now();
        loop {
            sleep(CHECK_EVERY).await;
            self.check(sink).await?;
            if let Err(error) = Writing(&self.state).settle_rest().await {
                self.state
                    .warn("cannot remove the entries of ended tasks", &error);
            }
            self.state.requests().shrink();
            if audited.elapsed() >= AUDIT_EVERY {
                audited = Instant::now();
                sink.audit(Cause::Interval);
            }
        }
    }

    /// Checks that the server is the master, marks sets that have lost their data, and reads whether events come.
    async fn check(&self, sink: &dyn AdoptionSink) -> Result<(), RedisError> {
        let state = &self.state;
        let server = state.keyspace.server().await?;
        if server.role == Some(Role::Replica) {
            return Err(RedisError::Replica(None));
        }
        if let Some(run_id) = server.run_id {
            let now = state.clock.now();
            let checked = state.marks.check(&state.entries, &run_id, now, sink).await;
            match checked {
                // Without a mark, absence is no evidence; all else works.
                Err(error) if error.is_refusal() => {
                    state.warn(
                        "cannot mark the sorted sets: entries that programs remove cancel no task",
                        &error,
                    );
                }
                checked => checked?,
            }
        }
        let flags = notify_flags(state.keyspace.commands()).await?;
        if let Some(flags) = flags {
            let announced = NotifyFlags::announce_sorted_sets(&flags);
            self.hears.store(announced, Ordering::Relaxed);
        }
        Ok(())
    }

    fn set_up(&self, up: bool) {
        self.up.store(up, Ordering::Relaxed);
        self.state.metrics.subscription(self.state.node(), up);
    }
}

/// The pause after this many entries were read.
fn pause(per_entry: Duration, entries: usize) -> Duration {
    per_entry.saturating_mul(u32::try_from(entries).unwrap_or(u32::MAX))
}
