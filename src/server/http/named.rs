//! The task that a request names in its path: by its key, or by the `id` of a list, which does not tell masked arguments.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use utoipa::openapi::Required;
use utoipa::openapi::path::{Parameter, ParameterBuilder, ParameterIn};
use utoipa::{IntoParams, PartialSchema as _};

use super::access::{Caller, Scope};
use super::app_state::AppState;
use super::input::InPath;
use super::listing::task_in_row;
use super::problem::Problem;
use lapsed::ledger::TaskRecord;
use lapsed::task::{Arming, TaskKey};

/// A task in the path.
pub enum TaskInPath {
    /// Its key, where `/` is written as `%2F`.
    Key(TaskKey),
    /// Its row, and the due time if the request names one arming. No key looks like it: a key has `@` in it.
    Row(u64, Option<Arming>),
}

/// Resolved reference to a task that the caller may touch. The task may not exist if the reference is a key.
pub struct TaskRef {
    /// Its key.
    pub key: TaskKey,
    /// The key as the answer has it: without arguments that the caller has not named.
    pub display_key: TaskKey,
}

impl<S: Send + Sync> FromRequestParts<S> for TaskInPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let InPath(text) = InPath::from_request_parts(parts, state).await?;
        Self::parse(&text)
    }
}

impl IntoParams for TaskInPath {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        const DESCRIPTION: &str = "The task key; `/` in it is written as `%2F`. Or the `id` of the task, or the number of its row in it.";
        let key = ParameterBuilder::new()
            .name("key")
            .parameter_in(ParameterIn::Path)
            .required(Required::True)
            .description(Some(DESCRIPTION))
            .schema(Some(String::schema()));
        vec![key.build()]
    }
}

impl TaskInPath {
    /// Reads a key such as `Order@close@42`, an id such as `42-1795291200250`, or the row in it: `42`.
    ///
    /// # Errors
    /// It is none of them.
    pub fn parse(text: &str) -> Result<Self, Problem> {
        let error = match TaskKey::parse(text) {
            Ok(key) => return Ok(Self::Key(key)),
            Err(error) => error,
        };
        if let Ok(row) = text.parse() {
            return Ok(Self::Row(row, None));
        }
        match text.parse::<Arming>() {
            Ok(arming) => Ok(Self::Row(arming.row, Some(arming))),
            Err(_) => Err(Problem::invalid(error.to_string())),
        }
    }

    /// Finds the key of the task.
    ///
    /// # Errors
    /// The caller lacks the scope, or may not touch its class; there is no such row; or the ledger fails.
    pub async fn resolve(
        self,
        app: &AppState,
        caller: &Caller,
        scope: Scope,
    ) -> Result<TaskRef, Problem> {
        caller.require(scope)?;
        match self {
            Self::Key(key) => {
                caller.require_key(&key)?;
                let display_key = key.clone();
                Ok(TaskRef { key, display_key })
            }
            Self::Row(row, arming) => {
                let task = task_in_row(app, caller, row, false).await?;
                let is_same = |id: &str| arming.is_none_or(|it| it.to_string() == id);
                let task = task.filter(|task| is_same(&task.id));
                let key = task.ok_or_else(Problem::no_task)?.key;
                let display_key = caller.masks.shown(&key);
                Ok(TaskRef { key, display_key })
            }
        }
    }

    /// Finds the archived task, the latest of a key, without what is masked; `None` if there is none that the caller may touch.
    ///
    /// # Errors
    /// The caller may not read it, or the ledger fails: also if there is no archive.
    pub async fn archived(
        self,
        app: &AppState,
        caller: &Caller,
    ) -> Result<Option<TaskRecord>, Problem> {
        caller.require(Scope::Read)?;
        let found = match self {
            Self::Key(key) => {
                caller.require_key(&key)?;
                app.tasks.find_archived(key).await?
            }
            Self::Row(row, arming) => {
                let task = task_in_row(app, caller, row, true).await?;
                let is_same = |id: &str| arming.is_none_or(|it| it.to_string() == id);
                let task = task.filter(|task| is_same(&task.id));
                task.map(|task| TaskRecord {
                    key: caller.masks.shown(&task.key),
                    ..task
                })
            }
        };
        Ok(found.map(|mut task| {
            task.mask(&caller.masks);
            task
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_named_by_its_key_its_id_or_its_row() {
        let row = |text: &str| match TaskInPath::parse(text) {
            Ok(TaskInPath::Row(row, arming)) => Some((row, arming.map(|it| it.due.0))),
            Ok(TaskInPath::Key(_)) | Err(_) => None,
        };
        assert_eq!(row("42"), Some((42, None)));
        assert_eq!(row("42-17"), Some((42, Some(17))));
        for text in ["Order@close@42", "42@17", "-1", "4 2", "42-", "x-17", ""] {
            assert_eq!(row(text), None, "{text}");
        }
    }
}
