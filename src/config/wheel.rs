//! `[wheel]`

use std::time::Duration;

use super::reader::{Problems, Reader};
use crate::task::{KEY_BYTES_MAX, TaskKey, UnixMs};

/// Most slots: each of them may be a list, and all are looked at every second.
const SLOTS_MAX: u32 = 86_400;

/// `[wheel]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WheelConfig {
    /// What the names of its keys in Redis begin with, after `redis.key_prefix`. The number of a slot follows.
    pub key: String,
    /// Number of slots.
    pub slots: u32,
    /// Time from one slot to the next.
    pub tick: Duration,
    /// Class of the tasks of programs' entries.
    pub class: String,
    /// When the timer of the programs was stopped: `lapsed listen --wheel-stopped-at`. Not a setting of the file.
    pub stopped_at: Option<UnixMs>,
}

pub(super) fn wheel(mut section: Reader, p: &mut Problems) -> Option<WheelConfig> {
    let key = section.checked(
        "key",
        p,
        |key: &String| (1..KEY_BYTES_MAX).contains(&key.len()),
        "1 to 254 bytes, such as \"task_\"",
    );
    let slots = section.checked("slots", p, |n| (1..=SLOTS_MAX).contains(n), "1 to 86400");
    let tick = section.duration("tick", p, Duration::from_millis(100));
    let class = section.checked(
        "class",
        p,
        |class: &String| TaskKey::build(class, "m", [""; 0]).is_ok(),
        "the class of a task key, such as \"Wheel\"",
    );
    section.done(p);
    Some(WheelConfig {
        key: key?,
        slots: slots?,
        tick: tick?,
        class: class?,
        stopped_at: None,
    })
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
