//! When the next tasks fall due, as bars.

use lapsed::task::UnixMs;

/// Number of bars.
const BARS: usize = 60;

/// Lengths of the stretches, in seconds.
const STEPS_S: [i64; 13] = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600];

/// Height of the highest bar, in units of the drawing.
const HEIGHT: u64 = 48;

/// Width of a bar with the space after it, in units of the drawing.
const WIDTH: u64 = 10;

/// The tasks of one stretch of time.
#[derive(Debug, PartialEq, Eq)]
pub struct Bar {
    /// Its place in the drawing, from the left.
    pub x: u64,
    /// Its upper end.
    pub y: u64,
    /// Its height.
    pub height: u64,
    /// Number of tasks.
    pub count: u64,
    /// Start of the stretch of time.
    pub from: UnixMs,
    /// Its end.
    pub until: UnixMs,
}

/// When the next tasks fall due.
#[derive(Debug, PartialEq, Eq)]
pub struct Timeline {
    /// Stretches of time with tasks.
    pub bars: Vec<Bar>,
    /// End of the last stretch.
    pub until: UnixMs,
    /// Number of tasks.
    pub count: u64,
    /// Most tasks of a stretch.
    pub highest: u64,
    /// Length of a stretch, in milliseconds.
    pub step_ms: u64,
}

impl Timeline {
    /// Draws these times from `now` on. With `has_more`, the drawing ends at the last of them: what comes later is not known.
    /// Without, it reaches at least an hour ahead.
    ///
    /// Returns `None` if there are no times.
    pub fn of(times: &[UnixMs], now: UnixMs, has_more: bool) -> Option<Self> {
        const HOUR_MS: i64 = 3_600_000;
        let last = times.last()?.0.saturating_sub(now.0);
        let bars = BARS as i64;
        let fits = |step: &&i64| **step * 1000 * bars >= last.max(HOUR_MS);
        let step = match has_more {
            true => last.max(bars) / bars + 1,
            false => {
                let longest = &STEPS_S[STEPS_S.len() - 1];
                STEPS_S.iter().find(fits).unwrap_or(longest) * 1000
            }
        };
        let mut counts = [0_u64; BARS];
        for at in times {
            let index = at.0.saturating_sub(now.0) / step;
            counts[index.clamp(0, bars - 1) as usize] += 1;
        }
        let highest = counts.iter().copied().max().unwrap_or_default();
        let drawn = counts.iter().enumerate().filter(|(_, count)| **count > 0);
        let drawn = drawn.map(|(index, count)| {
            // A single task is seen beside thousands.
            let height = (count * HEIGHT / highest).max(2);
            Bar {
                x: index as u64 * WIDTH,
                y: HEIGHT - height,
                height,
                count: *count,
                from: UnixMs(now.0 + index as i64 * step),
                until: UnixMs(now.0 + (index as i64 + 1) * step),
            }
        });
        Some(Self {
            bars: drawn.collect(),
            until: UnixMs(now.0 + bars * step),
            count: times.len() as u64,
            highest,
            step_ms: step as u64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(offsets: &[i64]) -> Vec<UnixMs> {
        offsets.iter().map(|ms| UnixMs(1_000_000 + ms)).collect()
    }

    #[test]
    fn each_task_is_in_the_bar_of_its_time() {
        let now = UnixMs(1_000_000);
        assert_eq!(Timeline::of(&[], now, false), None);
        let all = times(&[0, 59_000, 61_000, 61_000, 3_599_999]);
        let timeline = Timeline::of(&all, now, false).unwrap();
        assert_eq!((timeline.count, timeline.highest), (5, 2));
        let places: Vec<(u64, u64)> = timeline.bars.iter().map(|bar| (bar.x, bar.count)).collect();
        assert_eq!(places, [(0, 2), (10, 2), (590, 1)]);
        let bar = &timeline.bars[2];
        assert_eq!((bar.y, bar.height), (24, 24));
    }

    #[test]
    fn a_part_of_many_tasks_reaches_as_far_as_its_last() {
        let now = UnixMs(1_000_000);
        let all: Vec<UnixMs> = (0..2_000).map(|n| UnixMs(now.0 + n * 60)).collect();
        let timeline = Timeline::of(&all, now, true).unwrap();
        assert_eq!((timeline.count, timeline.step_ms), (2_000, 2_000));
        assert_eq!(
            timeline.until,
            UnixMs(now.0 + 120_000),
            "the last is due 60 ms before"
        );
        let odd: Vec<UnixMs> = (0..2_000).map(|n| UnixMs(now.0 + n * 200)).collect();
        let odd = Timeline::of(&odd, now, true).unwrap();
        assert_eq!(
            odd.bars.len(),
            60,
            "nothing looks like an end before the last"
        );
        assert_eq!(
            timeline.bars.iter().map(|bar| bar.count).sum::<u64>(),
            2_000
        );
        // Overdue meanwhile.
        let late = Timeline::of(&times(&[-5_000]), now, true).unwrap();
        assert_eq!((late.bars[0].x, late.bars[0].count), (0, 1));
    }
}
