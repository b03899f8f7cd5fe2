//! The hand of the wheel: visits a slot each tick.

mod catch_up;

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::ahead::Ahead;
use super::inbox::Inbox;
use super::wheel_clock::{Tick, WheelClock};
use crate::{Keyspace, RedisError, Role, Run, SlotEntry, WheelKeys};
use lapsed_core::clock::LedgerClock;
use lapsed_core::task::{RetryPolicy, TaskKey, UnixMs};
use lapsed_core::telemetry::log::LogLimiter;
use lapsed_core::timer::{AdoptionSink, Alarm, Cause, SignalSink};

/// An entry that stays this long after its due time may have been left behind.
pub(super) const LEFT_BEHIND: Duration = Duration::from_secs(60);

/// Pause after a failed session: 100 ms, then up to 2 s.
const AGAIN: RetryPolicy = RetryPolicy::endless(Duration::from_millis(100), Duration::from_secs(2));

/// A session of this length begins again without a pause.
const LONG_SESSION: Duration = Duration::from_secs(10);

/// How long before its tick a slot is read; at most half a tick.
const AHEAD_MAX: Duration = Duration::from_millis(250);

/// How long before its tick the list of a slot is read for the last time; at most a tenth of a tick.
const LAST_LOOK: Duration = Duration::from_millis(10);

/// Characters of the server's run id that are kept.
const RUN_CHARS: usize = 12;

/// Interval of the look for entries that were written after their slot was read.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How far back such a look reads: a task may be due already when its entry is written.
const LOOK_BACK: Duration = Duration::from_secs(1);

/// Entries of one slot read by such a look. The look-ahead finds what is left out.
const LOOK_LIMIT: usize = 500;

/// Entries of one page of a slot, and most pages.
const PAGE: usize = 10_000;
const PAGES_MAX: usize = 20;

/// With more ticks to handle than this, they are handled together.
const BEHIND_MAX: i64 = 2;

/// Visits slots, and looks for late entries.
#[derive(Debug)]
pub(super) struct Hand {
    keyspace: Keyspace,
    keys: WheelKeys,
    wheel_clock: WheelClock,
    clock: LedgerClock,
    ahead: Arc<Ahead>,
    /// `None` if no entry of a program is adopted.
    inbox: Option<Arc<Inbox>>,
    /// When the timer of the programs was stopped, before this one began.
    stopped_at: Option<UnixMs>,
    /// The last tick handled; `None` before the first.
    last: Mutex<Option<Tick>>,
    /// The last tick that was handled before this process.
    origin: Mutex<Option<Tick>>,
    /// The run of the server whose data were read.
    run: Mutex<Option<Arc<str>>>,
    turns: AtomicBool,
    failures: LogLimiter,
    /// Limits audits for the sake of entries that were left behind.
    leftovers: LogLimiter,
}

impl Hand {
    pub(super) fn new(
        keyspace: Keyspace,
        keys: WheelKeys,
        wheel_clock: WheelClock,
        clock: LedgerClock,
        ahead: Arc<Ahead>,
        inbox: Option<Arc<Inbox>>,
        stopped_at: Option<UnixMs>,
    ) -> Self {
        Self {
            stopped_at,
            keyspace,
            keys,
            wheel_clock,
            clock,
            ahead,
            inbox,
            last: Mutex::default(),
            origin: Mutex::default(),
            run: Mutex::default(),
            turns: AtomicBool::new(false),
            failures: LogLimiter::every(Duration::from_secs(30)),
            leftovers: LogLimiter::every(Duration::from_secs(3_600)),
        }
    }

    /// True if Redis answers and the wheel turns.
    pub(super) fn is_listening(&self) -> bool {
        self.turns.load(Ordering::Relaxed)
    }

    pub(super) fn stopped(&self) {
        self.turns.store(false, Ordering::Relaxed);
    }

    /// Runs sessions forever.
    pub(super) async fn run(&self, sink: &dyn AdoptionSink) -> Infallible {
        let mut failures = 0u16;
        loop {
            let began = Instant::now();
            let Err(error) = self.session(sink).await;
            self.stopped();
            if let Some(held_back) = self.failures.admit(error.reason()) {
                let remedy = error.remedy();
                let error = &error as &dyn std::error::Error;
                let node = self.keys.commands().endpoint().node();
                tracing::warn!(
                    redis.node = node,
                    error,
                    remedy,
                    held_back,
                    "the wheel has stopped: tasks run from the ledger alone meanwhile"
                );
            }
            failures = match began.elapsed() > LONG_SESSION {
                true => 0,
                false => failures.saturating_add(1),
            };
            sleep(AGAIN.delay(failures.max(1), rand::random())).await;
        }
    }

    /// Turns the wheel until Redis fails.
    async fn session(&self, sink: &dyn AdoptionSink) -> Result<Infallible, RedisError> {
        let run = self.server_run().await?;
        let before = self.known_run().clone();
        let cause = match before.is_some_and(|before| before != run) {
            true => Cause::RedisChanged,
            false => Cause::Subscribed,
        };
        self.catch_up(&run, Some(cause), sink).await?;
        // Not before: a session that failed on the way leaves the older data unread.
        *self.known_run() = Some(Arc::clone(&run));
        self.turns.store(true, Ordering::Relaxed);
        sink.audit(cause);
        match &self.inbox {
            Some(inbox) => tokio::select! {
                ended = self.turn(&run, sink) => ended,
                ended = self.look(sink) => ended,
                ended = inbox.watch(sink) => ended,
                ended = inbox.propose_left(sink) => ended,
            },
            None => tokio::select! {
                ended = self.turn(&run, sink) => ended,
                ended = self.look(sink) => ended,
            },
        }
    }

    /// Refuses a replica. Returns the run of the server.
    async fn server_run(&self) -> Result<Arc<str>, RedisError> {
        let server = self.keyspace.server().await?;
        if server.role == Some(Role::Replica) {
            return Err(RedisError::Replica(None));
        }
        let run = server.run_id.unwrap_or_default();
        Ok(run.chars().take(RUN_CHARS).collect::<String>().into())
    }

    /// Visits a slot each tick.
    async fn turn(
        &self,
        run: &Arc<str>,
        sink: &dyn AdoptionSink,
    ) -> Result<Infallible, RedisError> {
        let marked = Run {
            id: Arc::clone(run),
            is_marked: true,
        };
        let mut alarm_clock = super::super::alarm_clock(self.keyspace.commands());
        let tick = self.wheel_clock.ticks(1);
        let lead = AHEAD_MAX.min(tick / 2);
        loop {
            let current = self.wheel_clock.tick_at(self.clock.now());
            let last = self.last().unwrap_or(current);
            if !(-1..=BEHIND_MAX).contains(&(current.0 - last.0)) {
                self.catch_up(run, None, sink).await?;
                continue;
            }
            let next = last.next();
            let start = self.wheel_clock.start_of(next);
            let slot = self.wheel_clock.slot_of(next);
            let before = |lead: Duration| self.clock.instant_of(start.minus(lead));
            let mut seen = true;
            if let Some(inbox) = &self.inbox {
                // What is found now was not pushed by a program whose clock is ahead.
                alarm_clock.sleep_until(before(inbox.guard() * 6 / 5)).await;
                seen = inbox.take(slot, sink).await?;
            }
            alarm_clock.sleep_until(before(lead)).await;
            self.read(next, sink).await?;
            if let Some(inbox) = &self.inbox {
                alarm_clock
                    .sleep_until(before(LAST_LOOK.min(tick / 10)))
                    .await;
                seen |= inbox.take(slot, sink).await?;
            }
            alarm_clock.sleep_until(before(Duration::ZERO)).await;
            if let Some(inbox) = &self.inbox {
                inbox.visit(next, seen, sink).await?;
            }
            self.handled(next, &marked, next, sink).await?;
        }
    }

    /// Remembers a tick that was handled, here and in Redis. `from`: see [`LastTick::from`](crate::LastTick::from).
    async fn handled(
        &self,
        tick: Tick,
        run: &Run,
        from: Tick,
        sink: &dyn AdoptionSink,
    ) -> Result<(), RedisError> {
        let before = {
            let mut last = self.last.lock().expect("nothing panics while holding it");
            last.replace(tick)
        };
        let was_there = self.keys.mark_tick(tick.0, run, from.0).await?;
        if !was_there && before.is_some() {
            sink.audit(Cause::RedisChanged);
        }
        Ok(())
    }

    fn origin(&self) -> MutexGuard<'_, Option<Tick>> {
        self.origin.lock().expect("nothing panics while holding it")
    }

    fn known_run(&self) -> MutexGuard<'_, Option<Arc<str>>> {
        self.run.lock().expect("nothing panics while holding it")
    }

    fn last(&self) -> Option<Tick> {
        *self.last.lock().expect("nothing panics while holding it")
    }

    /// Reads the entries that fall due during a tick, and those of its slot that are overdue.
    async fn read(&self, tick: Tick, sink: &dyn SignalSink) -> Result<(), RedisError> {
        let slots = [self.wheel_clock.slot_of(tick)];
        let end = self.wheel_clock.start_of(tick.next());
        for page in 0..PAGES_MAX {
            let range = page * PAGE..(page + 1) * PAGE;
            let found = self.keys.due_in(&slots, None, end, range).await?;
            let is_last = found.len() < PAGE;
            self.expect(found, sink);
            if is_last {
                break;
            }
        }
        Ok(())
    }

    /// Looks for entries that other processes wrote after their slot was read.
    async fn look(&self, sink: &dyn SignalSink) -> Result<Infallible, RedisError> {
        loop {
            sleep(LOOK_EVERY).await;
            let now = self.clock.now();
            let current = self.wheel_clock.tick_at(now);
            let from = now.minus(LOOK_BACK);
            let before = self.wheel_clock.tick_at(from).before();
            let ticks = self.wheel_clock.missed(before, current.next());
            let slots: Vec<u32> = ticks.map(|tick| self.wheel_clock.slot_of(tick)).collect();
            let end = self.wheel_clock.start_of(current.next()).plus(LOOK_EVERY);
            let found = self.keys.due_in(&slots, Some(from), end, 0..LOOK_LIMIT);
            self.expect(found.await?, sink);
        }
    }

    /// Expects the tasks that this daemon owns and can run.
    fn expect(&self, entries: Vec<SlotEntry>, sink: &dyn SignalSink) {
        let long_ago = self.clock.now().minus(LEFT_BEHIND);
        if entries.iter().any(|(_, due)| *due < long_ago)
            && self.leftovers.admit("left behind").is_some()
        {
            sink.audit(Cause::Interval);
        }
        let alarms = entries.into_iter().filter_map(alarm);
        let ours = alarms.filter(|alarm| sink.wants(&alarm.key) && sink.owns(&alarm.key));
        self.ahead.expect_new(ours);
    }
}

/// The alarm of an entry; `None` if its member is no task key.
pub(super) fn alarm((member, due): SlotEntry) -> Option<Alarm> {
    let key = TaskKey::parse(std::str::from_utf8(&member).ok()?).ok()?;
    Some(Alarm {
        key,
        due,
        arming: None,
    })
}
