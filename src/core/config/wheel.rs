//! `[wheel]`

use std::time::Duration;

use super::rules::{at_least, checked, no_key, section, within};
use crate::task::{KEY_BYTES_MAX, TaskKey, UnixMs};

/// Most slots: each of them may be a list, and all are looked at every second.
const SLOTS_MAX: u32 = 86_400;

section! {
    /// `[wheel]`
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct WheelConfig {
        /// What the names of its keys in Redis begin with, after `redis.key_prefix`. The number of a slot follows.
        pub key: String = checked(|key: &String| is_key(key), "1 to 254 bytes, such as \"task_\""),
        /// Number of slots.
        pub slots: u32 = within(1..=SLOTS_MAX),
        /// Time from one slot to the next.
        pub tick: Duration = at_least(Duration::from_millis(100)),
        /// Class of the tasks of programs' entries.
        pub class: String = checked(|class: &String| is_class(class), "the class of a task key, such as \"Wheel\""),
        /// When the timer of the programs was stopped: `lapsed listen --wheel-stopped-at`. Not a setting of the file.
        pub stopped_at: Option<UnixMs> = no_key(None),
    }
}

fn is_key(key: &str) -> bool {
    (1..KEY_BYTES_MAX).contains(&key.len())
}

fn is_class(class: &str) -> bool {
    TaskKey::build(class, "m", [""; 0]).is_ok()
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    #[test]
    fn a_wheel_is_read_and_its_problems_are_named() {
        let read =
            "timer = 'wheel'\nwheel = { key = 'w:', slots = 5, tick = '200ms', class = 'Job' }";
        let wheel = Config::from_toml(read).unwrap().wheel;
        assert_eq!((&wheel.key[..], wheel.slots), ("w:", 5));
        assert_eq!((wheel.tick.as_millis(), &wheel.class[..]), (200, "Job"));
        let wrong = "wheel = { key = '', slots = 0, tick = '1ms', class = 'a@b', slot = 1 }";
        let error = Config::from_toml(wrong).unwrap_err().to_string();
        assert_eq!(
            error.lines().collect::<Vec<_>>(),
            [
                "`wheel.key`: expected 1 to 254 bytes, such as \"task_\"",
                "`wheel.slots`: expected 1 to 86400, found 0",
                "`wheel.tick`: expected at least 100 ms, found \"1ms\"",
                "`wheel.class`: expected the class of a task key, such as \"Wheel\"",
                "`wheel.slot`: is not the name of a setting, did you mean `slots`?",
            ]
        );
    }
}
