//! The wall clock is set while a daemon runs on a file, whose clock it is. A machine that was suspended looks the same: its
//! wall clock has jumped, and its monotonic clock has not.

use std::path::{Path, PathBuf};

use super::embedded::Embedded;
use crate::support::resp_wire::{Reply, Wire};
use crate::support::wait::until;

const HOUR_MS: i64 = 3_600_000;

/// The wall clock of a program, apart from the machine's by the seconds in a file. Monotonic time is left alone.
struct FakedClock {
    offset: PathBuf,
    offset_ms: i64,
}

impl FakedClock {
    fn new(directory: &Path) -> Self {
        let mut clock = Self {
            offset: directory.join("offset"),
            offset_ms: 0,
        };
        clock.set(0);
        clock
    }

    fn set(&mut self, offset_ms: i64) {
        // The program never reads half of it.
        let new = self.offset.with_extension("new");
        std::fs::write(&new, format!("{:+}\n", offset_ms / 1000)).unwrap();
        std::fs::rename(&new, &self.offset).unwrap();
        self.offset_ms = offset_ms;
    }

    fn now_ms(&self) -> i64 {
        lapsed::clock::wall().0 + self.offset_ms
    }

    /// What a program is started with.
    fn environment(&self) -> [(&str, String); 4] {
        let path = |path: PathBuf| path.into_os_string().into_string().unwrap();
        [
            ("LD_PRELOAD", path(library())),
            ("FAKETIME_TIMESTAMP_FILE", path(self.offset.clone())),
            ("FAKETIME_NO_CACHE", "1".to_owned()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
        ]
    }
}

/// Debian keeps it below the name of the architecture.
pub fn library() -> PathBuf {
    let architectures = std::fs::read_dir("/usr/lib").unwrap();
    let mut libraries = architectures
        .map(|found| found.unwrap().path().join("faketime/libfaketimeMT.so.1"))
        .filter(|path| path.exists());
    libraries.next().expect("libfaketime is installed")
}

/// Schedules a task, and checks when it is due.
fn schedule(wire: &mut Wire, clock: &FakedClock, key: &str, in_ms: i64) {
    let before_ms = clock.now_ms();
    let answer = wire.ask(&["PSETEX", key, &in_ms.to_string(), ""]);
    assert_eq!(answer, Reply::Simple("OK".to_owned()));
    let after_ms = clock.now_ms();
    let Reply::Integer(due_ms) = wire.ask(&["PEXPIRETIME", key]) else {
        panic!("{key} is not pending");
    };
    let due = before_ms + in_ms..=after_ms + in_ms;
    assert!(due.contains(&due_ms), "{key}: {due_ms}, expected {due:?}");
}

#[tokio::test]
async fn a_task_is_due_by_the_wall_clock_as_it_was_just_set() {
    let place = Embedded::new();
    let mut clock = FakedClock::new(&place.path(""));
    let environment = clock.environment();
    let environment = environment
        .each_ref()
        .map(|(name, value)| (*name, &**value));
    let (_daemon, mut wire) = place.serve_with(&environment).await;
    schedule(&mut wire, &clock, "Job@record@far", HOUR_MS);
    clock.set(HOUR_MS / 2);
    // At once: nothing has told the daemon.
    schedule(&mut wire, &clock, "Job@record@farther", HOUR_MS);
    assert_eq!(place.ran(), [""; 0], "half an hour early");
    clock.set(HOUR_MS + 60_000);
    until("the first task is due", async || !place.ran().is_empty()).await;
    assert_eq!(place.ran(), ["Job@record@far"]);
    clock.set(0);
    schedule(&mut wire, &clock, "Job@record@again", HOUR_MS);
    // Too near to look at before it runs.
    wire.ask(&["PSETEX", "Job@record@near", "1", ""]);
    until("a task runs after the clock was set back", async || {
        place.ran().len() > 1
    })
    .await;
    assert_eq!(place.ran(), ["Job@record@far", "Job@record@near"]);
}
