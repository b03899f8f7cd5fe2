//! What the judge has seen of what only some runs have.

/// How often the judge looked at what only some runs have.
#[derive(Debug, Clone, Copy, Default)]
pub struct Looked {
    /// Commands of programs in Redis that were followed to the ledger.
    pub(super) keys: u64,
    /// Occurrences of series that were run.
    pub(super) occurrences: u64,
    /// Rules of series that were changed.
    pub(super) rules: u64,
    /// Starts of tasks that have a rate.
    pub(super) rated: u64,
    /// Rows that retention has deleted.
    pub(super) pruned: u64,
}

impl Looked {
    pub fn counts(self) -> impl Iterator<Item = (&'static str, u64)> {
        let Self {
            keys,
            occurrences,
            rules,
            rated,
            pruned,
        } = self;
        [
            ("keys", keys),
            ("occurrences", occurrences),
            ("rules", rules),
            ("rated", rated),
            ("pruned", pruned),
        ]
        .into_iter()
    }
}
