//! Retention of finished tasks: `[retention]`.

use std::time::Duration;

use super::reader::{Problems, Reader};
use super::rules::{any, at_least_or_none, section, within};

section! {
    /// `[retention]`
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct RetentionConfig {
        /// How long a done task is kept; `None`: forever.
        pub done: Option<Duration> = at_least_or_none(AGE_MIN); live,
        /// How long a dead task is kept.
        pub dead: Option<Duration> = at_least_or_none(AGE_MIN); live,
        /// How long a cancelled task is kept after its due time.
        pub cancelled: Option<Duration> = at_least_or_none(AGE_MIN); live,
        /// Maximum number of done tasks, the most recently due ones; `None`: no limit.
        pub done_max: Option<u64> = at_most_or_0; live,
        /// Maximum number of rows deleted or archived per second.
        pub rate: u32 = within(1..=100_000); live,
        /// Moves tasks to the archive instead of deleting them.
        pub archive: bool = any; live,
        /// How long an archived task is kept, as its age counts for retention; `None`: forever.
        pub archive_keep: Option<Duration> = at_least_or_none(AGE_MIN); live,
    }
}

impl RetentionConfig {
    /// Whether all tasks, archived ones too, are kept forever.
    pub fn is_off(&self) -> bool {
        let Self {
            done,
            dead,
            cancelled,
            done_max,
            rate: _,
            archive,
            archive_keep,
        } = self;
        let is_archive_kept = !archive || archive_keep.is_none();
        done.or(*dead).or(*cancelled).is_none() && done_max.is_none() && is_archive_kept
    }
}

/// Shortest age. A late signal must find the row of its task: without the row the task could be adopted as new.
const AGE_MIN: Duration = Duration::from_secs(60);

/// A number; `None` for 0.
fn at_most_or_0(section: &mut Reader, key: &str, p: &mut Problems) -> Option<Option<u64>> {
    let most = section.take(key, p)?;
    Some(Some(most).filter(|most| *most > 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn everything_is_kept_unless_said_otherwise() {
        assert!(Config::default().retention.is_off());
        let some = Config::from_toml("retention = { done = '7d', done_max = 1000 }").unwrap();
        assert_eq!(some.retention.done, Some(Duration::from_secs(7 * 86_400)));
        assert_eq!(some.retention.done_max, Some(1000));
        assert_eq!(some.retention.dead, None);
        assert!(!some.retention.is_off());
    }

    #[test]
    fn all_that_is_wrong_is_said_at_once() {
        let error = Config::from_toml("retention = { done = '0s', dead = 7, rate = 0, keep = 1 }");
        assert_eq!(
            error.unwrap_err().to_string(),
            "`retention.done`: expected at least 60000 ms, or \"none\", found \"0s\"\n\
             `retention.dead`: expected a duration with a unit, such as \"1500ms\", \"30s\" or \"15m\", or \"none\", found 7\n\
             `retention.rate`: expected 1 to 100000, found 0\n\
             `retention.keep`: is not the name of a setting"
        );
    }
}
