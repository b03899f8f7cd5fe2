//! Scores: three bands in one sorted set, told apart by their size. Pure.
//!
//! Programs write seconds or milliseconds, lapsed writes microseconds. All are the natural due time in their unit. The
//! bands do not overlap: microseconds begin at 1e14 (in 1973), milliseconds end there (in 5138).

use lapsed_core::config::ScoreUnit;
use lapsed_core::task::{UnixMs, row_due};

/// The lowest score of lapsed's own entries, in microseconds. Programs write lower scores.
pub const OWN_FROM: f64 = 1e14;

/// The lowest score in milliseconds, where the unit is told by size.
pub const MILLISECONDS_FROM: f64 = 1e11;

/// Latest due time of an entry: as long after now as a task may be scheduled.
const LATEST_MS: f64 = 1e13;

/// What a score means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Score {
    /// A program requests this due time. Never a whole second.
    Request(UnixMs),
    /// A program requests a run at once: zero, or a negative number.
    RequestNow,
    /// lapsed's own entry, for this due time.
    Own(UnixMs),
    /// No due time: infinite, or thousands of years ahead.
    Never,
}

impl Score {
    /// Reads a score, as Redis returns it.
    pub fn read(score: f64, unit: ScoreUnit) -> Self {
        if score <= 0.0 {
            return Self::RequestNow;
        }
        let is_own = score >= OWN_FROM;
        let micros_per_unit = match unit {
            _ if is_own => 1.0,
            ScoreUnit::Seconds => 1e6,
            ScoreUnit::Auto if score < MILLISECONDS_FROM => 1e6,
            ScoreUnit::Auto | ScoreUnit::Milliseconds => 1e3,
        };
        // Rounded to a microsecond first: a fraction of a second is not exact. Then up, so that no task is early.
        let due_ms = ((score * micros_per_unit).round() / 1e3).ceil();
        if due_ms.is_nan() || due_ms > LATEST_MS {
            return Self::Never;
        }
        let due = UnixMs(due_ms as i64);
        match is_own {
            true => Self::Own(due),
            false => Self::Request(row_due(due)),
        }
    }

    /// The score of lapsed's own entry for a due time.
    pub fn own(due: UnixMs) -> f64 {
        (due.0.saturating_mul(1000) as f64).max(OWN_FROM)
    }

    /// The score that a program would write for a due time.
    pub fn request(due: UnixMs, unit: ScoreUnit) -> f64 {
        match unit {
            ScoreUnit::Seconds => due.0 as f64 / 1e3,
            ScoreUnit::Auto | ScoreUnit::Milliseconds => due.0 as f64,
        }
    }
}

/// The score of lapsed's own entry for a due time.
pub fn own_score(due: UnixMs) -> f64 {
    Score::own(due)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const UNITS: [ScoreUnit; 3] = [ScoreUnit::Auto, ScoreUnit::Seconds, ScoreUnit::Milliseconds];

    #[test]
    fn seconds_milliseconds_and_microseconds_are_told_apart_by_size() {
        let told = [
            (1_603_620_459.0, Score::Request(UnixMs(1_603_620_459_001))),
            (1_603_620_459.25, Score::Request(UnixMs(1_603_620_459_250))),
            (
                1_603_620_459_250.0,
                Score::Request(UnixMs(1_603_620_459_250)),
            ),
            (
                1_603_620_459_250.5,
                Score::Request(UnixMs(1_603_620_459_251)),
            ),
            (
                1_603_620_459_250_000.0,
                Score::Own(UnixMs(1_603_620_459_250)),
            ),
            (1.0, Score::Request(UnixMs(1_001))),
            (0.0, Score::RequestNow),
            (-0.0, Score::RequestNow),
            (-5.0, Score::RequestNow),
            (f64::NEG_INFINITY, Score::RequestNow),
            (f64::INFINITY, Score::Never),
            (f64::NAN, Score::Never),
            (8e15, Score::Own(UnixMs(8_000_000_000_000))),
            (1e17, Score::Never),
        ];
        for (score, means) in told {
            assert_eq!(Score::read(score, ScoreUnit::Auto), means, "{score}");
        }
    }

    #[test]
    fn the_bands_meet_at_their_bounds() {
        let read = |score| Score::read(score, ScoreUnit::Auto);
        // 1e11 seconds are the year 5138, 1e11 milliseconds are 1973.
        assert_eq!(read(1e11 - 1.0), Score::Never);
        assert_eq!(read(1e10 - 1.0), Score::Request(UnixMs(9_999_999_999_001)));
        assert_eq!(read(1e11), Score::Request(UnixMs(100_000_000_001)));
        assert_eq!(read(1e14), Score::Own(UnixMs(100_000_000_000)));
        let below = f64::from_bits(1e14_f64.to_bits() - 1);
        assert!(!matches!(read(below), Score::Own(_)));
    }

    #[test]
    fn a_configured_unit_decides_below_microseconds() {
        let small = Score::read(1_603_620_459.0, ScoreUnit::Milliseconds);
        assert_eq!(small, Score::Request(UnixMs(1_603_620_459)));
        let large = Score::read(1_603_620_459_250.0, ScoreUnit::Seconds);
        assert_eq!(large, Score::Never);
        for unit in UNITS {
            let own = Score::read(1_603_620_459_250_000.0, unit);
            assert_eq!(own, Score::Own(UnixMs(1_603_620_459_250)));
        }
    }

    proptest! {
        #[test]
        fn an_own_score_is_read_back(ms in 100_000_000_000_i64..4_000_000_000_000) {
            for unit in UNITS {
                prop_assert_eq!(Score::read(Score::own(UnixMs(ms)), unit), Score::Own(UnixMs(ms)));
            }
        }

        #[test]
        fn a_requested_time_is_read_back(ms in 1_000_000_000_000_i64..4_000_000_000_000) {
            for unit in UNITS {
                let score = Score::request(UnixMs(ms), unit);
                prop_assert_eq!(Score::read(score, unit), Score::Request(row_due(UnixMs(ms))));
            }
        }

        #[test]
        fn no_score_is_read_as_early(score in 1.0_f64..1e10) {
            if let Score::Request(due) = Score::read(score, ScoreUnit::Auto) {
                let asked_us = (score * 1e6).round();
                prop_assert!(due.0 as f64 * 1e3 >= asked_us);
                prop_assert!(due.0 as f64 * 1e3 < asked_us + 2e3);
            }
        }

        #[test]
        fn any_number_is_read(bits in any::<u64>()) {
            for unit in UNITS {
                let _ = Score::read(f64::from_bits(bits), unit);
            }
        }
    }
}
