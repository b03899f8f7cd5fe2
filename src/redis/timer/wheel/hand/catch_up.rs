//! Ticks that were missed: while no daemon ran, while Redis did not answer, or because Redis has returned with older data.

use std::sync::Arc;

use super::Hand;
use crate::timer::wheel::inbox::Inbox;
use crate::timer::wheel::wheel_clock::Tick;
use crate::{LastTick, RedisError, Run};
use lapsed_core::timer::{AdoptionSink, Cause};

/// Number of ticks before the last one whose slots are read again after a pause of the wheel.
const READ_AGAIN: i64 = 2;

/// Overdue entries of one slot read when ticks were missed. The sweep finds what is left out.
const MISSED_LIMIT: usize = 10_000;

/// Slots that are checked with one command.
const SLOTS_AT_ONCE: usize = 1_000;

impl Hand {
    /// Handles all ticks that were missed, in order of due time. The entries of one revolution of slots are all there are.
    /// `cause`: why the entries are audited when a session begins; `None` within a session.
    pub(super) async fn catch_up(
        &self,
        run: &Arc<str>,
        cause: Option<Cause>,
        sink: &dyn AdoptionSink,
    ) -> Result<(), RedisError> {
        let current = self.wheel_clock.tick_at(self.clock.now());
        let slots = i64::from(self.wheel_clock.slots());
        let marked = self.keys.last_tick().await?;
        let of_run = |marked: &LastTick| marked.run.as_deref().map(|old| old == &**run);
        let of_run = marked.as_ref().and_then(of_run);
        if cause.is_none() && of_run != Some(true) {
            return Err(RedisError::Replaced);
        }
        let run = Run {
            id: Arc::clone(run),
            is_marked: of_run == Some(true),
        };
        let is_changed = cause == Some(Cause::RedisChanged);
        let has_tick = marked.is_some();
        let in_redis = marked.map(|marked| match marked.from {
            // Another daemon has begun this run, and what it has left is as old.
            Some(from) if is_changed && run.is_marked => Tick(from),
            _ => Tick(marked.tick),
        });
        // Data without a tick are of the time before this process, if they are not empty. A wheel that has turned for a
        // round is in every snapshot.
        let origin = self.origin().filter(|origin| current.0 - origin.0 <= slots);
        let returned = match is_changed || of_run == Some(false) {
            true => in_redis.or(origin),
            false => None,
        };
        // The lists are as old as the tick that Redis has returned with.
        let last = returned.or(self.last()).or(in_redis);
        // Entries may have been written into slots that were just visited. Before the first tick, all slots may have some.
        let known = match last {
            Some(last) => Tick(last.0 - READ_AGAIN),
            None => Tick(current.0 - slots),
        };
        let stopped_at = self
            .stopped_at
            .map(|moment| self.wheel_clock.tick_at(moment));
        // A wheel of programs begins to turn now. A later tick means that the clock was set back.
        let last = last.or(stopped_at);
        let last = last.map_or(current, |last| last.min(current));
        self.origin().get_or_insert(last);
        if let Some(inbox) = &self.inbox {
            inbox.begin_after(&run, last).await;
            if !has_tick {
                inbox.distrust_age();
            }
        }
        let slots = self.wheel_clock.missed(known, current);
        let slots: Vec<u32> = slots.map(|tick| self.wheel_clock.slot_of(tick)).collect();
        let end = self.wheel_clock.start_of(current.next());
        let found = self.keys.due_in(&slots, None, end, 0..MISSED_LIMIT).await?;
        self.expect(found, sink);
        if let Some(inbox) = &self.inbox {
            let restored = returned.and(Some(last));
            self.catch_up_lists(inbox, last, current, restored, sink)
                .await?;
            let marked = Run {
                is_marked: true,
                ..run.clone()
            };
            inbox.begin_after(&marked, current).await;
        }
        if !run.is_marked && self.server_run().await? != run.id {
            return Err(RedisError::Replaced);
        }
        if current.0 > last.0 + 1 {
            tracing::info!(ticks = current.0 - last.0, "caught up with missed ticks");
        }
        self.handled(current, &run, last, sink).await
    }

    /// Takes entries of programs from the slots of ticks that were missed; if Redis has returned with older data, from all.
    async fn catch_up_lists(
        &self,
        inbox: &Inbox,
        last: Tick,
        current: Tick,
        restored: Option<Tick>,
        sink: &dyn AdoptionSink,
    ) -> Result<(), RedisError> {
        let missed: Vec<Tick> = self.wheel_clock.missed(last, current).collect();
        for ticks in missed.chunks(SLOTS_AT_ONCE) {
            let slots: Vec<u32> = ticks
                .iter()
                .map(|tick| self.wheel_clock.slot_of(*tick))
                .collect();
            let have = inbox.lists(&slots).await?;
            for (tick, _) in ticks
                .iter()
                .zip(slots)
                .filter(|(_, slot)| have.contains(slot))
            {
                inbox.visit_missed(*tick, last, restored, sink).await?;
            }
        }
        if let Some(last) = restored {
            let ahead = current.next().0..=last.0 + i64::from(self.wheel_clock.slots());
            let slots: Vec<u32> = ahead
                .map(|tick| self.wheel_clock.slot_of(Tick(tick)))
                .collect();
            for slot in inbox.lists(&slots).await? {
                inbox.take_restored(slot, last, sink).await?;
            }
        }
        Ok(())
    }
}
