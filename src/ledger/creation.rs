//! Creating and rescheduling a task.

use crate::task::{Arming, Recurrence, State, TaskKey, UnixMs};

/// A task to be created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewTask {
    /// What it is called. There is one task of a key at a time.
    pub key: TaskKey,
    /// When it falls due.
    pub due: UnixMs,
    /// JSON, at most [`PAYLOAD_BYTES_MAX`](crate::task::PAYLOAD_BYTES_MAX) bytes.
    pub payload: Option<String>,
    /// Tag to find and cancel tasks by.
    pub tag: Option<String>,
    /// Runs, not retries; over the route's.
    pub max_attempts: Option<u16>,
    /// What becomes of a task of this key that is there.
    pub if_pending: IfPending,
    /// Its recurrence, if any.
    pub recurrence: Option<Recurrence>,
}

impl NewTask {
    /// A task without payload, tag or limit of its own.
    pub fn new(key: TaskKey, due: UnixMs) -> Self {
        Self {
            key,
            due,
            payload: None,
            tag: None,
            max_attempts: None,
            if_pending: IfPending::Move,
            recurrence: None,
        }
    }
}

/// What [`Producer::create`](super::Producer::create) does where a task of the key is there with another due time, and has
/// not finished. The same due time again changes nothing, whatever the policy; a finished or cancelled task is
/// replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum IfPending {
    /// It is moved, and becomes what is asked for. A run in progress is superseded: its result is discarded, and the new
    /// arming runs after it. To debounce.
    #[default]
    Move,
    /// What is pending, or waits for a retry, stays as it is, due time, payload and all. A run in progress may have begun
    /// before there was this reason to run again, so it is superseded. To throttle.
    Keep,
    /// What is pending, waits for a retry or is being run stays as it is, and the request is refused. For one at a time.
    Refuse,
}

impl IfPending {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Move, Self::Keep, Self::Refuse];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Move => "move",
            Self::Keep => "keep",
            Self::Refuse => "refuse",
        }
    }
}

impl std::str::FromStr for IfPending {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|policy| policy.as_str() == text);
        found.ok_or_else(|| format!("`{text}` is none of `move`, `keep`, `refuse`"))
    }
}

/// What [`Producer::create`](super::Producer::create) came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Created {
    /// The arming that stands now.
    pub arming: Arming,
    /// Its state. `Done` and `Dead` say that this very arming has run before: a repeated request
    /// does not run it twice.
    pub state: State,
    /// An older arming of this key is being run; its result will be discarded.
    pub older_run: bool,
    /// When the task that stands was created.
    pub since: UnixMs,
    /// Whether it is what was asked for.
    pub stands: Stands,
}

/// Whose arming stands after [`Producer::create`](super::Producer::create).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stands {
    /// The one that was asked for, from now on or for longer.
    Asked,
    /// One that was there, and was kept.
    Kept,
    /// One that was there: the request is refused.
    Refused,
}

impl Stands {
    /// Whose arming `due` is, if `asked` was asked for.
    pub(super) fn after(asked: &NewTask, due: UnixMs) -> Self {
        match asked.if_pending {
            _ if due == asked.due => Self::Asked,
            // It was moved again since.
            IfPending::Move => Self::Asked,
            IfPending::Keep => Self::Kept,
            IfPending::Refuse => Self::Refused,
        }
    }
}

/// Result of [`Producer::reschedule`](super::Producer::reschedule).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RescheduleAnswer {
    /// It falls due at the new time; this is its new arming.
    Moved(Arming),
    /// It is being run.
    Running,
    /// It had finished, in this state.
    Finished(State),
    /// There is no such task.
    Unknown,
}
