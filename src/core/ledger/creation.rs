//! New tasks, and the results of creating and rescheduling them.

use crate::task::{Arming, Contents, Recurrence, State, TaskKey, UnixMs};

/// A task to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewTask {
    /// Its key. There is at most one task of a key.
    pub key: TaskKey,
    /// Its due time.
    pub due: UnixMs,
    /// Payload, tag and limit.
    pub contents: Contents,
    /// Runs that it had before, in another system: the next run is the one after these.
    pub attempts: u16,
    /// Policy for an existing task of this key.
    pub if_pending: IfPending,
    /// With [`IfPending::Move`]: replaces a task with the same due time and another payload, tag or limit, too, unless that
    /// runs or has ended. Without it, the same due time again changes nothing.
    pub replaces: bool,
    /// Its recurrence, if any.
    pub recurrence: Option<Recurrence>,
}

impl NewTask {
    /// Creates a task without payload, tag or limit of its own.
    pub fn new(key: TaskKey, due: UnixMs) -> Self {
        Self {
            key,
            due,
            contents: Contents::default(),
            attempts: 0,
            if_pending: IfPending::Move,
            replaces: true,
            recurrence: None,
        }
    }

    /// Returns the same task for a row that is written over whatever it is.
    pub fn over_any(&self) -> Self {
        Self {
            if_pending: IfPending::Move,
            replaces: true,
            ..self.clone()
        }
    }

    /// True if this is to replace a task with the same due time that has other contents.
    pub(super) fn replaces_same_due(&self) -> bool {
        self.replaces && self.if_pending == IfPending::Move
    }

    /// Returns tasks with their places, those of one policy after those of another.
    pub(super) fn by_policy(tasks: &[Self]) -> impl Iterator<Item = (usize, &Self)> {
        let of = |policy| {
            let places = tasks.iter().enumerate();
            places.filter(move |(_, task)| task.if_pending == policy)
        };
        IfPending::ALL.into_iter().flat_map(of)
    }
}

/// Policy of [`Producer::create`](super::Producer::create) for an unfinished task of the same key with another due time.
///
/// The same task for the same due time again changes nothing, whatever the policy: it is the same request again. With
/// [`Move`](Self::Move), one that differs gets the new payload, tag and limit: see [`NewTask::replaces`]. A finished or
/// cancelled task is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, serde::Deserialize)]
#[cfg_attr(
    feature = "openapi",
    derive(utoipa::ToSchema),
    schema(description = "Policy for an unfinished task of the same key.")
)]
#[serde(rename_all = "lowercase")]
pub enum IfPending {
    /// Replaces the existing task. A run in progress is superseded: its result is discarded, and the new arming runs after
    /// it. For debouncing.
    #[default]
    Move,
    /// Keeps a task that is pending or waits for a retry, unchanged. A run in progress is superseded, since it may have
    /// begun before the reason for this request. For throttling.
    Keep,
    /// Keeps a task that is pending, waits for a retry or is running, and refuses the request. For one task at a time.
    Refuse,
}

impl IfPending {
    /// All policies.
    pub const ALL: [Self; 3] = [Self::Move, Self::Keep, Self::Refuse];

    /// The name of the policy.
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

/// Result of [`Producer::create`](super::Producer::create).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Created {
    /// The current arming.
    pub arming: Arming,
    /// Its state. `Done` and `Dead` say that this same arming has run before: a repeated request does not run it again.
    pub state: State,
    /// True if an older arming of this key is running. Its result will be discarded.
    pub older_run: bool,
    /// When the current task was created.
    pub since: UnixMs,
    /// Whether the current task is the requested one.
    pub result: CreateResult,
}

/// Which task is current after [`Producer::create`](super::Producer::create).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CreateResult {
    /// The requested one, created now or before.
    Written,
    /// An existing one, which was kept.
    Kept,
    /// An existing one: the request is refused.
    Refused,
}

impl CreateResult {
    /// Returns which task is current if `due` is its due time after `asked` was requested.
    pub fn after(asked: &NewTask, due: UnixMs) -> Self {
        match asked.if_pending {
            _ if due == asked.due => Self::Written,
            // Another request has moved it since.
            IfPending::Move => Self::Written,
            IfPending::Keep => Self::Kept,
            IfPending::Refuse => Self::Refused,
        }
    }
}

/// Result of [`Producer::reschedule`](super::Producer::reschedule).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RescheduleAnswer {
    /// The task is due at the new time. This is its new arming.
    Moved(Arming),
    /// The task is running.
    Running,
    /// The task had already finished, in this state.
    Finished(State),
    /// There is no such task.
    Unknown,
}
