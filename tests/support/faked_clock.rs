//! A wall clock that a test sets, by libfaketime.

use std::path::{Path, PathBuf};

/// The wall clock of a program, apart from the machine's by the seconds in a file. Monotonic time is left alone.
pub struct FakedClock {
    offset: PathBuf,
    offset_ms: i64,
}

impl FakedClock {
    /// As the machine's, until it is set. Keeps its file in this directory.
    pub fn new(directory: &Path) -> Self {
        let mut clock = Self {
            offset: directory.join("offset"),
            offset_ms: 0,
        };
        clock.set(0);
        clock
    }

    /// Sets it apart from the machine's by whole seconds.
    pub fn set(&mut self, offset_ms: i64) {
        // The program never reads half of it.
        let new = self.offset.with_extension("new");
        std::fs::write(&new, format!("{:+}\n", offset_ms / 1000)).unwrap();
        std::fs::rename(&new, &self.offset).unwrap();
        self.offset_ms = offset_ms;
    }

    #[allow(dead_code)] // not every binary asks
    pub fn now_ms(&self) -> i64 {
        lapsed::clock::wall().0 + self.offset_ms
    }

    /// What a program is started with.
    pub fn environment(&self) -> [(&str, String); 4] {
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
