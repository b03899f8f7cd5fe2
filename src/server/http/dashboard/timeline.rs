//! When the next tasks fall due, as bars.

use lapsed::ledger::Forecast;
use lapsed::task::UnixMs;

/// Number of bars.
const BARS: usize = 60;

/// Lengths of the stretches, in steps of the forecast, which are minutes.
const MINUTES: [usize; 7] = [1, 2, 5, 10, 15, 24, 30];

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
    /// Start of the first stretch.
    pub from: UnixMs,
    /// End of the last stretch.
    pub until: UnixMs,
    /// Until when tasks were counted.
    pub known: UnixMs,
    /// The place of that time in the drawing, from the left.
    pub known_x: u64,
    /// Number of tasks.
    pub count: u64,
    /// True if there are more tasks, after the known time; or in the only stretch that is known.
    pub is_part: bool,
    /// Most tasks of a stretch.
    pub highest: u64,
    /// Length of a stretch, in milliseconds.
    pub step_ms: u64,
}

impl Timeline {
    /// Draws a forecast: up to its last task, but at least an hour.
    ///
    /// Returns `None` if there are no tasks.
    pub fn of(forecast: &Forecast) -> Option<Self> {
        let Forecast {
            from,
            step,
            ref counts,
            is_part,
        } = *forecast;
        let last = counts.iter().rposition(|count| *count > 0)?;
        let minutes = MINUTES.iter().copied();
        let minutes = minutes
            .filter(|minutes| minutes * BARS > last)
            .min()
            .unwrap_or(counts.len().div_ceil(BARS));
        let step_ms = i64::try_from(step.as_millis()).unwrap_or(i64::MAX);
        let at =
            |minute: usize| UnixMs(from.0.saturating_add(step_ms.saturating_mul(minute as i64)));
        let stretches: Vec<u64> = counts
            .chunks(minutes)
            .map(|part| part.iter().sum())
            .collect();
        let highest = stretches.iter().copied().max().unwrap_or_default();
        let drawn = stretches
            .iter()
            .enumerate()
            .filter(|(_, count)| **count > 0);
        let drawn = drawn.map(|(index, count)| {
            // A single task is seen beside thousands.
            let height = (count * HEIGHT / highest).max(2);
            Bar {
                x: index as u64 * WIDTH,
                y: HEIGHT - height,
                height,
                count: *count,
                from: at(index * minutes),
                until: at((index + 1) * minutes),
            }
        });
        let end = minutes * BARS;
        let known = match is_part {
            true => counts.len().min(end),
            false => end,
        };
        Some(Self {
            bars: drawn.collect(),
            from,
            until: at(end),
            known: at(known),
            known_x: known as u64 * WIDTH / minutes as u64,
            count: counts.iter().sum(),
            is_part,
            highest,
            step_ms: minutes as u64 * step_ms.unsigned_abs(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const FROM: UnixMs = UnixMs(1_000_000);

    fn forecast(counts: Vec<u64>, is_part: bool) -> Forecast {
        Forecast {
            from: FROM,
            step: Duration::from_secs(60),
            counts,
            is_part,
        }
    }

    /// A day with tasks in these minutes.
    fn day(tasks: &[(usize, u64)]) -> Forecast {
        let mut counts = vec![0; 1_440];
        for (minute, count) in tasks {
            counts[*minute] = *count;
        }
        forecast(counts, false)
    }

    #[test]
    fn each_task_is_in_the_bar_of_its_time() {
        assert_eq!(Timeline::of(&day(&[])), None);
        let timeline = Timeline::of(&day(&[(0, 2), (1, 4), (59, 1)])).unwrap();
        assert_eq!((timeline.count, timeline.highest), (7, 4));
        assert_eq!((timeline.step_ms, timeline.known_x), (60_000, 600));
        let places: Vec<(u64, u64)> = timeline.bars.iter().map(|bar| (bar.x, bar.count)).collect();
        assert_eq!(places, [(0, 2), (10, 4), (590, 1)]);
        let bar = &timeline.bars[0];
        assert_eq!((bar.y, bar.height), (24, 24));
        assert_eq!(
            (bar.from, bar.until),
            (FROM, UnixMs(FROM.0 + 60_000)),
            "the list behind it has this time"
        );
    }

    #[test]
    fn the_drawing_reaches_as_far_as_its_last_task() {
        for (last, hours) in [(59, 1), (60, 2), (150, 5), (1_439, 24)] {
            let timeline = Timeline::of(&day(&[(0, 1), (last, 1)])).unwrap();
            assert_eq!(timeline.until.0 - FROM.0, hours * 3_600_000, "{last}");
            assert_eq!(timeline.bars.len(), 2);
            assert_eq!(timeline.known, timeline.until);
        }
    }

    #[test]
    fn what_was_not_counted_does_not_look_like_an_end() {
        let timeline = Timeline::of(&forecast(vec![1_000; 90], true)).unwrap();
        assert_eq!((timeline.count, timeline.is_part), (90_000, true));
        assert_eq!(timeline.known, UnixMs(FROM.0 + 90 * 60_000));
        assert_eq!((timeline.known_x, timeline.bars.len()), (450, 45));
        assert_eq!(timeline.until, UnixMs(FROM.0 + 120 * 60_000));
    }
}
