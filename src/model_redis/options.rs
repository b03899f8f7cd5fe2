//! How the server is set up.

use lapsed_core::task::UnixMs;

/// How the server is set up.
#[derive(Debug, Clone)]
pub struct Options {
    /// Its clock when it is created.
    pub start: UnixMs,
    /// Seed of everything random: run ids, and which events go wrong.
    pub seed: u64,
    /// `notify-keyspace-events` in its configuration file.
    pub notify: String,
    /// Expiry cycles in a second.
    pub hz: u32,
    /// Keys that a cycle looks at before it judges whether to go on. With fewer than all, keys that nobody uses expire
    /// late, by some cycles.
    pub keys_per_batch: usize,
    /// Whether changes are recorded.
    pub history: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            start: UnixMs(1_800_000_000_000),
            seed: 0,
            notify: "Exg".to_owned(),
            hz: 10,
            keys_per_batch: 20,
            history: true,
        }
    }
}
