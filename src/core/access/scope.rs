//! Scopes.

/// What a principal may do. No scope includes another, but [`Admin`](Self::Admin) includes all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessScope {
    /// Look at tasks and figures.
    Read,
    /// Create, move and cancel single tasks.
    Schedule,
    /// Take tasks of pull queues and settle them.
    Work,
    /// Run now, redrive, discard, pause, and change many tasks at once. No command of RESP needs it.
    Operate,
    /// Everything.
    Admin,
}

impl AccessScope {
    /// All scopes.
    pub const ALL: [Self; 5] = [
        Self::Read,
        Self::Schedule,
        Self::Work,
        Self::Operate,
        Self::Admin,
    ];

    /// The name in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Schedule => "schedule",
            Self::Work => "work",
            Self::Operate => "operate",
            Self::Admin => "admin",
        }
    }
}
