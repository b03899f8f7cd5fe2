//! The arithmetic of the wheel: ticks, slots and rounds.
//!
//! Ticks are counted from 1970. Tick `n` begins at `n x tick` and visits slot `n % slots`, so that a slot of one second on
//! a wheel of 3,600 is the second of the hour.

use std::time::Duration;

use lapsed_core::task::UnixMs;

/// The size of a wheel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WheelClock {
    slots: i64,
    tick_ms: i64,
}

/// The number of a tick, counted from 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Tick(pub i64);

impl Tick {
    pub(super) fn next(self) -> Self {
        Self(self.0 + 1)
    }

    pub(super) fn before(self) -> Self {
        Self(self.0 - 1)
    }
}

impl WheelClock {
    /// A wheel of at least one slot, whose ticks last at least a millisecond.
    pub(super) fn new(slots: u32, tick: Duration) -> Self {
        Self {
            slots: i64::from(slots.max(1)),
            tick_ms: i64::try_from(tick.as_millis()).unwrap_or(i64::MAX).max(1),
        }
    }

    pub(super) fn slots(self) -> u32 {
        u32::try_from(self.slots).expect("created from a u32")
    }

    /// Returns the length of some ticks.
    pub(super) fn ticks(self, count: u32) -> Duration {
        Duration::from_millis(self.tick_ms.unsigned_abs()).saturating_mul(count)
    }

    /// Returns the tick during which `moment` lies.
    pub(super) fn tick_at(self, moment: UnixMs) -> Tick {
        Tick(moment.0.div_euclid(self.tick_ms))
    }

    /// Returns when a tick begins.
    pub(super) fn start_of(self, tick: Tick) -> UnixMs {
        UnixMs(tick.0.saturating_mul(self.tick_ms))
    }

    /// Returns the slot that a tick visits.
    pub(super) fn slot_of(self, tick: Tick) -> u32 {
        let slot = tick.0.rem_euclid(self.slots);
        u32::try_from(slot).expect("less than the number of slots")
    }

    /// Returns the first tick after `last` that visits a slot.
    pub(super) fn first_visit(self, slot: u32, last: Tick) -> Tick {
        let next = last.next();
        let ahead = (i64::from(slot) - next.0).rem_euclid(self.slots);
        Tick(next.0 + ahead)
    }

    /// Returns the tick that runs an entry with `cycle_num` further rounds to wait, in a slot last visited at `last` or
    /// before; `None` beyond the range of time.
    pub(super) fn visit_after(self, slot: u32, last: Tick, cycle_num: u64) -> Option<Tick> {
        let rounds = i64::try_from(cycle_num).ok()?.checked_mul(self.slots)?;
        let visit = self.first_visit(slot, last).0.checked_add(rounds)?;
        visit.checked_mul(self.tick_ms)?;
        Some(Tick(visit))
    }

    /// Returns the ticks after `last` up to `current`, at most one revolution: the latest visit of each slot.
    pub(super) fn missed(self, last: Tick, current: Tick) -> impl Iterator<Item = Tick> {
        let first = last.next().0.max(current.0.saturating_sub(self.slots - 1));
        (first..=current.0).map(Tick)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The executor of the seed document: lists of `cycle_num`, and a visit each tick. Returns the tick that runs an
    /// entry pushed into `slot` when `last` was the latest visit.
    fn executed_at(slots: i64, last: i64, slot: i64, mut cycle_num: u64) -> i64 {
        let mut tick = last;
        loop {
            tick += 1;
            if tick % slots == slot {
                if cycle_num == 0 {
                    return tick;
                }
                cycle_num -= 1;
            }
        }
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn both_examples_of_the_seed_run_when_its_executor_runs_them() {
        let wheel_clock = WheelClock::new(3_600, SECOND);
        let visit = |slot, last, cycle_num| wheel_clock.visit_after(slot, Tick(last), cycle_num);
        // "The cursor is at 1, due after 7,219 s: slot 20, cycle_num 2."
        assert_eq!(visit(20, 1, 2), Some(Tick(1 + 7_219)));
        // "After 48 hours: cycle_num 47." The slot is that of the cursor, which has just been visited.
        assert_eq!(visit(1, 1, 47), Some(Tick(1 + 48 * 3_600)));
        // By the formula of the first example it would be 48, and an hour later.
        assert_eq!(visit(1, 1, 48), Some(Tick(1 + 49 * 3_600)));
    }

    #[test]
    fn a_due_time_beyond_the_range_of_time_is_none() {
        let wheel_clock = WheelClock::new(3_600, SECOND);
        assert_eq!(wheel_clock.visit_after(1, Tick(7), u64::MAX), None);
        assert_eq!(
            wheel_clock.visit_after(1, Tick(7), i64::MAX as u64 / 3_600),
            None
        );
    }

    #[test]
    fn ticks_missed_are_at_most_one_revolution_in_order() {
        let wheel_clock = WheelClock::new(5, SECOND);
        let missed = |last, current| -> Vec<i64> {
            let ticks = wheel_clock.missed(Tick(last), Tick(current));
            ticks.map(|tick| tick.0).collect()
        };
        assert!(missed(7, 7).is_empty());
        assert_eq!(missed(7, 9), [8, 9]);
        assert_eq!(missed(7, 100), [96, 97, 98, 99, 100]);
        assert!(missed(9, 7).is_empty(), "the clock was set back");
    }

    proptest! {
        #[test]
        fn an_entry_runs_at_the_tick_at_which_the_executor_of_the_seed_runs_it(
            slots in 1i64..50, last in 0i64..5_000, slot in 0i64..50, cycle_num in 0u64..20,
        ) {
            let slot = slot % slots;
            let wheel_clock = WheelClock::new(slots as u32, SECOND);
            let visit = wheel_clock.visit_after(slot as u32, Tick(last), cycle_num).unwrap();
            prop_assert_eq!(visit.0, executed_at(slots, last, slot, cycle_num));
            prop_assert_eq!(wheel_clock.slot_of(visit), slot as u32);
            prop_assert!(visit > Tick(last));
        }

        #[test]
        fn a_moment_lies_in_its_tick(slots in 1u32..5_000, tick_ms in 1u64..100_000, moment in 0i64..4_000_000_000_000) {
            let wheel_clock = WheelClock::new(slots, Duration::from_millis(tick_ms));
            let tick = wheel_clock.tick_at(UnixMs(moment));
            prop_assert!(wheel_clock.start_of(tick) <= UnixMs(moment));
            prop_assert!(UnixMs(moment) < wheel_clock.start_of(tick.next()));
            prop_assert!(wheel_clock.slot_of(tick) < slots);
            prop_assert_eq!(wheel_clock.first_visit(wheel_clock.slot_of(tick), tick.before()), tick);
        }
    }
}
