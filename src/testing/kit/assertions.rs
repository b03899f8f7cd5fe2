//! Assertions on tasks. Their failures print what was found.

use std::time::Duration;

use serde_json::Value;

use super::{TestKit, lines};
use crate::client::IntoKey;
use crate::ledger::TaskRecord;
use crate::task::{Outcome, State, TaskKey, UnixMs};
use crate::testing::Ran;

impl TestKit {
    /// Asserts that the task is pending, or waits for a retry.
    ///
    /// # Panics
    /// If it is not. The message lists the scheduled tasks.
    #[track_caller]
    pub fn assert_scheduled(&self, key: impl IntoKey) -> ScheduledTask {
        let key = read(key);
        match self.find(&key) {
            Some(task) if matches!(task.state, State::Pending | State::Waiting) => ScheduledTask {
                task,
                now: self.now(),
            },
            found => panic!(
                "expected `{key}` to be scheduled, but {}; it is {}, and what is scheduled is\n{}",
                state_of(found.as_ref()),
                self.now(),
                lines(self.scheduled().iter().map(|task| self.show(task)))
            ),
        }
    }

    /// Asserts that the task is neither pending nor waits for a retry: it is running or finished, or does not exist.
    ///
    /// # Panics
    /// If it is scheduled.
    #[track_caller]
    pub fn assert_not_scheduled(&self, key: impl IntoKey) {
        let key = read(key);
        if let Some(task) = self.find(&key)
            && matches!(task.state, State::Pending | State::Waiting)
        {
            panic!(
                "expected `{key}` not to be scheduled, but it is:\n  {}",
                self.show(&task)
            );
        }
    }

    /// Asserts that the task has run at least once. A task that started too late and was not run does not count. Tasks with
    /// the same class, method and arguments and a suffix do, such as occurrences that may overlap.
    ///
    /// # Panics
    /// If it has not run. The message lists all runs.
    #[track_caller]
    pub fn assert_ran(&self, key: impl IntoKey) -> TaskRuns {
        let key = read(key);
        let runs: Vec<Ran> = self.runs_of(&key);
        if runs.is_empty() {
            panic!(
                "expected `{key}` to have run, but it has not: {}; it is {}, and what ran is\n{}",
                state_of(self.find(&key).as_ref()),
                self.now(),
                lines(self.ran())
            );
        }
        TaskRuns { key, runs }
    }

    /// Asserts that the task has not run.
    ///
    /// # Panics
    /// If it has run.
    #[track_caller]
    pub fn assert_not_ran(&self, key: impl IntoKey) {
        let key = read(key);
        let runs = self.runs_of(&key);
        assert!(
            runs.is_empty(),
            "expected `{key}` not to have run, but it has:\n{}",
            lines(&runs)
        );
    }

    /// Asserts that the task is dead.
    ///
    /// # Panics
    /// If it is not. The message lists its runs.
    #[track_caller]
    pub fn assert_dead(&self, key: impl IntoKey) -> DeadTask {
        let key = read(key);
        match self.find(&key) {
            Some(task) if task.state == State::Dead => DeadTask { task },
            found => panic!(
                "expected `{key}` to be dead, but {}; its runs were\n{}",
                state_of(found.as_ref()),
                lines(self.runs_of(&key))
            ),
        }
    }

    /// Returns the runs of a task, and of tasks with the same arguments and a suffix.
    fn runs_of(&self, key: &TaskKey) -> Vec<Ran> {
        let is_one_of_many = |other: &TaskKey| {
            key.suffix().is_none()
                && other.class_method() == key.class_method()
                && other.args().eq(key.args())
        };
        let runs = self
            .ran()
            .iter()
            .filter(|ran| ran.reached_handler() && (ran.key == *key || is_one_of_many(&ran.key)));
        runs.cloned().collect()
    }

    fn show(&self, task: &TaskRecord) -> String {
        let TaskRecord {
            key, state, due_at, ..
        } = task;
        format!(
            "{key}  {state}, due {due_at}, {}",
            from(self.now(), *due_at)
        )
    }
}

/// A scheduled task, for further assertions. Each panics if it does not hold.
#[derive(Debug, Clone)]
pub struct ScheduledTask {
    task: TaskRecord,
    now: UnixMs,
}

impl ScheduledTask {
    /// Asserts that it is due after this delay.
    #[track_caller]
    pub fn due_in(self, delay: Duration) -> Self {
        let expected = self.now.plus(delay);
        self.check_due(expected..=expected)
    }

    /// Asserts that it is due at this moment.
    #[track_caller]
    pub fn due_at(self, moment: UnixMs) -> Self {
        self.check_due(moment..=moment)
    }

    /// Asserts that it is due within this range of delays.
    #[track_caller]
    pub fn due_between(self, least: Duration, most: Duration) -> Self {
        let expected = self.now.plus(least)..=self.now.plus(most);
        self.check_due(expected)
    }

    /// Asserts that it has this tag.
    #[track_caller]
    pub fn with_tag(self, tag: &str) -> Self {
        let (key, found) = (&self.task.key, self.task.tag.as_deref());
        assert!(
            found == Some(tag),
            "expected `{key}` to have the tag `{tag}`, found {found:?}"
        );
        self
    }

    /// Asserts that it has this payload. The order of members does not matter.
    #[track_caller]
    pub fn with_payload(self, payload: &Value) -> Self {
        let (key, found) = (&self.task.key, self.task.payload.as_deref());
        let found_value: Option<Value> = found.and_then(|text| serde_json::from_str(text).ok());
        assert!(
            found_value.as_ref() == Some(payload),
            "expected `{key}` to have the payload `{payload}`, found {found:?}"
        );
        self
    }

    /// The task.
    pub fn task(&self) -> &TaskRecord {
        &self.task
    }

    #[track_caller]
    fn check_due(self, expected: std::ops::RangeInclusive<UnixMs>) -> Self {
        let (key, found) = (&self.task.key, self.task.due_at);
        let (least, most) = (*expected.start(), *expected.end());
        let wanted = match least == most {
            true => format!("at {least} ({})", from(self.now, least)),
            false => format!("between {least} and {most}"),
        };
        assert!(
            expected.contains(&found),
            "expected `{key}` to be due {wanted}, but it is due at {found} ({})",
            from(self.now, found)
        );
        self
    }
}

/// The runs of one task, for further assertions. Each panics if it does not hold.
#[derive(Debug, Clone)]
pub struct TaskRuns {
    key: TaskKey,
    runs: Vec<Ran>,
}

impl TaskRuns {
    /// Asserts the number of runs.
    #[track_caller]
    pub fn times(self, count: usize) -> Self {
        let Self { key, runs } = &self;
        assert!(
            runs.len() == count,
            "expected `{key}` to have run {count} times, but it has {} times:\n{}",
            runs.len(),
            lines(runs)
        );
        self
    }

    /// Asserts that the last run succeeded.
    #[track_caller]
    pub fn succeeded(self) -> Self {
        let is_success = matches!(
            self.last().outcome,
            Outcome::Succeeded | Outcome::Completed | Outcome::Again(_)
        );
        let Self { key, runs } = &self;
        assert!(
            is_success,
            "expected the last run of `{key}` to have succeeded, but\n{}",
            lines(runs)
        );
        self
    }

    /// Asserts that the last run began at this moment.
    #[track_caller]
    pub fn at(self, moment: UnixMs) -> Self {
        let (key, found) = (&self.key, self.last().at);
        assert!(
            found == moment,
            "expected the last run of `{key}` to have begun at {moment}, found {found} ({})",
            from(moment, found)
        );
        self
    }

    /// Returns all runs in their order, at least one.
    pub fn all(&self) -> &[Ran] {
        &self.runs
    }

    /// Returns the last run.
    pub fn last(&self) -> &Ran {
        self.runs.last().expect("there is at least one")
    }
}

/// A dead task, for further assertions. Each panics if it does not hold.
#[derive(Debug, Clone)]
pub struct DeadTask {
    task: TaskRecord,
}

impl DeadTask {
    /// Asserts that its last error contains this text.
    #[track_caller]
    pub fn with_error(self, part: &str) -> Self {
        let (key, found) = (
            &self.task.key,
            self.task.last_error.as_deref().unwrap_or_default(),
        );
        assert!(
            found.contains(part),
            "expected `{key}` to be dead of `{part}`, found `{found}`"
        );
        self
    }

    /// The task.
    pub fn task(&self) -> &TaskRecord {
        &self.task
    }
}

#[track_caller]
fn read(key: impl IntoKey) -> TaskKey {
    match key.into_key() {
        Ok(key) => key,
        Err(error) => panic!("{error}"),
    }
}

fn state_of(task: Option<&TaskRecord>) -> String {
    match task {
        None => "there is no such task".to_owned(),
        Some(TaskRecord {
            state,
            last_error: Some(error),
            ..
        }) => format!("it is {state} ({error})"),
        Some(TaskRecord {
            state: State::Pending,
            due_at,
            ..
        }) => format!("it is pending, due {due_at}"),
        Some(TaskRecord { state, .. }) => format!("it is {state}"),
    }
}

/// Describes `moment` relative to `now`.
fn from(now: UnixMs, moment: UnixMs) -> String {
    match moment >= now {
        true => format!("in {:?}", moment.since(now)),
        false => format!("{:?} ago", now.since(moment)),
    }
}
