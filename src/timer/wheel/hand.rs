//! The hand of the wheel: visits a slot each tick.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::ahead::Ahead;
use super::dial::{Dial, Tick};
use super::inbox::Inbox;
use crate::clock::LedgerClock;
use crate::redis::{Keyspace, RedisError, Role, SlotEntry, WheelKeys};
use crate::task::{Backoff, RetryPolicy, TaskKey};
use crate::telemetry::log::LogLimiter;
use crate::timer::{Alarm, AlarmClock, Cause, SignalSink};

/// An entry that stays this long after its due time may have been left behind.
pub(super) const LEFT_BEHIND: Duration = Duration::from_secs(60);

/// Pause after a failed session: 100 ms, then up to 2 s.
const AGAIN: RetryPolicy = RetryPolicy {
    backoff: Backoff::Exponential {
        base: Duration::from_millis(100),
        max: Duration::from_secs(2),
    },
    max_attempts: u16::MAX,
    jitter: 0.25,
    deadline: None,
};

/// A session of this length begins again without a pause.
const LONG_SESSION: Duration = Duration::from_secs(10);

/// How long before its tick a slot is read; at most half a tick.
const AHEAD_MAX: Duration = Duration::from_millis(250);

/// Interval of the look for entries that were written after their slot was read.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How far back such a look reads: a task may be due already when its entry is written.
const LOOK_BACK: Duration = Duration::from_secs(1);

/// Entries of one slot read by such a look. The look-ahead finds what is left out.
const LOOK_LIMIT: usize = 500;

/// Entries of one page of a slot, and most pages.
const PAGE: usize = 10_000;
const PAGES_MAX: usize = 20;

/// Overdue entries of one slot read when ticks were missed. The sweep finds what is left out.
const MISSED_LIMIT: usize = 10_000;

/// Number of ticks before the last one whose slots are read again after a pause of the wheel.
const READ_AGAIN: i64 = 2;

/// With more ticks to handle than this, they are handled together.
const BEHIND_MAX: i64 = 2;

/// Slots that are checked with one command.
const SLOTS_AT_ONCE: usize = 1_000;

/// Visits slots, and looks for late entries.
#[derive(Debug)]
pub(super) struct Hand {
    keyspace: Keyspace,
    keys: WheelKeys,
    dial: Dial,
    clock: LedgerClock,
    ahead: Arc<Ahead>,
    /// `None` if no entry of a program is adopted.
    inbox: Option<Arc<Inbox>>,
    /// The last tick handled; `None` before the first.
    last: Mutex<Option<Tick>>,
    run_id: Mutex<Option<String>>,
    turns: AtomicBool,
    failures: LogLimiter,
    /// Limits audits for the sake of entries that were left behind.
    leftovers: LogLimiter,
}

impl Hand {
    pub(super) fn new(
        keyspace: Keyspace,
        keys: WheelKeys,
        dial: Dial,
        clock: LedgerClock,
        ahead: Arc<Ahead>,
        inbox: Option<Arc<Inbox>>,
    ) -> Self {
        Self {
            keyspace,
            keys,
            dial,
            clock,
            ahead,
            inbox,
            last: Mutex::default(),
            run_id: Mutex::default(),
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
    pub(super) async fn run(&self, sink: &dyn SignalSink) -> Infallible {
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
                    "the wheel stands still: tasks run from the ledger alone meanwhile"
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
    async fn session(&self, sink: &dyn SignalSink) -> Result<Infallible, RedisError> {
        let cause = self.check_server().await?;
        self.catch_up(sink).await?;
        self.turns.store(true, Ordering::Relaxed);
        sink.audit(cause);
        match &self.inbox {
            Some(inbox) => tokio::select! {
                ended = self.turn(sink) => ended,
                ended = self.look(sink) => ended,
                ended = inbox.watch(sink) => ended,
                ended = inbox.propose_left(sink) => ended,
            },
            None => tokio::select! {
                ended = self.turn(sink) => ended,
                ended = self.look(sink) => ended,
            },
        }
    }

    /// Refuses a replica. Returns why the entries are to be audited.
    async fn check_server(&self) -> Result<Cause, RedisError> {
        let server = self.keyspace.server().await?;
        if server.role == Some(Role::Replica) {
            return Err(RedisError::Replica(None));
        }
        let mut run_id = self
            .run_id
            .lock()
            .expect("nothing panics while holding the run id");
        let before = std::mem::replace(&mut *run_id, server.run_id);
        Ok(match before.is_some() && before != *run_id {
            true => Cause::RedisChanged,
            false => Cause::Subscribed,
        })
    }

    /// Visits a slot each tick.
    async fn turn(&self, sink: &dyn SignalSink) -> Result<Infallible, RedisError> {
        let mut alarm_clock = AlarmClock::of_the_kernel();
        let lead = AHEAD_MAX.min(self.dial.ticks(1) / 2);
        loop {
            let current = self.dial.tick_at(self.clock.now());
            let last = self.last().unwrap_or(current);
            if !(-1..=BEHIND_MAX).contains(&(current.0 - last.0)) {
                self.catch_up(sink).await?;
                continue;
            }
            let next = last.next();
            let start = self.dial.start_of(next);
            let early = self.clock.instant_of(start.minus(lead));
            alarm_clock.sleep_until(early).await;
            self.read(next, sink).await?;
            if let Some(inbox) = &self.inbox {
                inbox.take(self.dial.slot_of(next), sink).await?;
            }
            alarm_clock.sleep_until(self.clock.instant_of(start)).await;
            if let Some(inbox) = &self.inbox {
                inbox.visit(next, sink).await?;
            }
            self.handled(next, sink).await?;
        }
    }

    /// Handles all ticks that were missed, in order of due time. The entries of one revolution of slots are all there are.
    async fn catch_up(&self, sink: &dyn SignalSink) -> Result<(), RedisError> {
        let current = self.dial.tick_at(self.clock.now());
        let last = match self.last() {
            Some(last) => Some(last),
            None => self.keys.last_tick().await?.map(Tick),
        };
        // Entries may have been written into slots that were just visited. Before the first tick, all slots may have some.
        let known = match last {
            Some(last) => Tick(last.0 - READ_AGAIN),
            None => Tick(current.0 - i64::from(self.dial.slots())),
        };
        // A wheel of programs begins to turn now. A later tick means that the clock was set back.
        let last = last.map_or(current, |last| last.min(current));
        if let Some(inbox) = &self.inbox {
            inbox.begin_after(last).await;
        }
        let slots = self.dial.missed(known, current);
        let slots: Vec<u32> = slots.map(|tick| self.dial.slot_of(tick)).collect();
        let end = self.dial.start_of(current.next());
        let found = self.keys.due_in(&slots, None, end, 0..MISSED_LIMIT).await?;
        self.expect(found, sink);
        if let Some(inbox) = &self.inbox {
            let missed: Vec<Tick> = self.dial.missed(last, current).collect();
            for ticks in missed.chunks(SLOTS_AT_ONCE) {
                let slots = ticks.iter().map(|tick| self.dial.slot_of(*tick));
                if self.keys.count_lists(&slots.collect::<Vec<_>>()).await? > 0 {
                    for tick in ticks {
                        inbox.visit_missed(*tick, last, sink).await?;
                    }
                }
            }
            inbox.begin_after(current).await;
        }
        if current.0 > last.0 + 1 {
            tracing::info!(ticks = current.0 - last.0, "caught up with missed ticks");
        }
        self.handled(current, sink).await
    }

    async fn handled(&self, tick: Tick, sink: &dyn SignalSink) -> Result<(), RedisError> {
        let before = {
            let mut last = self.last.lock().expect("nothing panics while holding it");
            last.replace(tick)
        };
        let was_there = self.keys.mark_tick(tick.0).await?;
        if !was_there && before.is_some() {
            sink.audit(Cause::RedisChanged);
        }
        Ok(())
    }

    fn last(&self) -> Option<Tick> {
        *self.last.lock().expect("nothing panics while holding it")
    }

    /// Reads the entries that fall due during a tick, and those of its slot that are overdue.
    async fn read(&self, tick: Tick, sink: &dyn SignalSink) -> Result<(), RedisError> {
        let slots = [self.dial.slot_of(tick)];
        let end = self.dial.start_of(tick.next());
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
            let current = self.dial.tick_at(now);
            let from = now.minus(LOOK_BACK);
            let before = self.dial.tick_at(from).before();
            let ticks = self.dial.missed(before, current.next());
            let slots: Vec<u32> = ticks.map(|tick| self.dial.slot_of(tick)).collect();
            let end = self.dial.start_of(current.next()).plus(LOOK_EVERY);
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
