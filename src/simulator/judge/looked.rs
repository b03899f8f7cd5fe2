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
    /// Rules that waited for the end of a run in which the series was cancelled.
    pub waiting_rules: u64,
    /// Starts of tasks that have a rate.
    pub(super) rated: u64,
    /// Rows that retention has deleted.
    pub(super) pruned: u64,
    /// Rows that retention has moved to the archive.
    pub(super) archived: u64,
    /// Rows that were written for keys whose former rows were deleted.
    pub(super) adopted_again: u64,
    /// Keys without a row in a restored ledger that were followed to the ledger.
    pub(super) restored: u64,
    /// Entries in lists of a wheel that were followed to the ledger.
    pub(super) pushes: u64,
    /// Entries for a later round.
    pub(super) rounds: u64,
    /// Batches of tasks that were acknowledged.
    pub(super) batches: u64,
    /// Changes of all tasks of a class that were acknowledged.
    pub(super) bulk: u64,
    /// Starts of tasks after all others of their group.
    pub(super) groups: u64,
    /// Tasks that an older program has created again, and a daemon has undeleted.
    pub(super) undeleted: u64,
    /// Tasks that the destination of a move got.
    pub(super) moved: u64,
}

impl Looked {
    pub fn counts(self) -> impl Iterator<Item = (&'static str, u64)> {
        let Self {
            keys,
            occurrences,
            rules,
            waiting_rules,
            rated,
            pruned,
            archived,
            adopted_again,
            restored,
            pushes,
            rounds,
            batches,
            bulk,
            groups,
            undeleted,
            moved,
        } = self;
        [
            ("keys", keys),
            ("occurrences", occurrences),
            ("rules", rules),
            ("waiting_rules", waiting_rules),
            ("rated", rated),
            ("pruned", pruned),
            ("archived", archived),
            ("adopted_again", adopted_again),
            ("restored", restored),
            ("pushes", pushes),
            ("rounds", rounds),
            ("batches", batches),
            ("bulk", bulk),
            ("groups", groups),
            ("undeleted", undeleted),
            ("moved", moved),
        ]
        .into_iter()
    }
}
