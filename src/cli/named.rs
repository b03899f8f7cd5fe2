//! A task on the command line, by its key or by its id.

use std::fmt;
use std::str::FromStr;

use anyhow::bail;
use lapsed::ledger::{Ledger, ListFilter, TaskRecord};
use lapsed::task::{Arming, KeyError, TaskKey};

/// The task that an argument names.
#[derive(Debug, Clone)]
pub enum NamedTask {
    /// By its key.
    Key(TaskKey),
    /// By its id, `<row id>-<due ms>`, as logs, handlers and answers have it. No key looks like it: a key has `@` in it.
    Id(Arming),
}

impl FromStr for NamedTask {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        TaskKey::parse(text).map(Self::Key).or_else(|error| {
            let id = text.parse().map(Self::Id);
            id.map_err(|_| error)
        })
    }
}

impl NamedTask {
    /// Returns the key. One that is given need not be of a task.
    ///
    /// # Errors
    /// There is no task with this id.
    pub async fn key(&self, ledger: &dyn Ledger) -> anyhow::Result<TaskKey> {
        let arming = match self {
            Self::Key(key) => return Ok(key.clone()),
            Self::Id(arming) => arming,
        };
        match in_row(ledger, arming, false).await? {
            Some(task) if task.id == arming.to_string() => Ok(task.key),
            Some(task) => bail!(
                "there is no task with the id `{arming}` any more: the due time of `{}` has changed, and its id is `{}`",
                task.key,
                task.id
            ),
            None => bail!("there is no task with the id `{arming}`"),
        }
    }

    /// Returns the archived task with this id, or the latest one of this key.
    ///
    /// # Errors
    /// Those of the ledger; also if there is no archive.
    pub async fn archived(&self, ledger: &dyn Ledger) -> anyhow::Result<Option<TaskRecord>> {
        match self {
            Self::Key(key) => Ok(ledger.find_archived(key).await?),
            Self::Id(arming) => {
                let found = in_row(ledger, arming, true).await?;
                Ok(found.filter(|task| task.id == arming.to_string()))
            }
        }
    }
}

/// Finds the task in the row of an arming.
async fn in_row(
    ledger: &dyn Ledger,
    arming: &Arming,
    archived: bool,
) -> anyhow::Result<Option<TaskRecord>> {
    let Some(filter) = ListFilter::from_row(arming.row, archived) else {
        return Ok(None);
    };
    let found = ledger.list(&filter).await?.tasks.into_iter().next();
    Ok(found.filter(|task| task.row() == Some(arming.row)))
}

impl fmt::Display for NamedTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(key) => key.fmt(f),
            Self::Id(arming) => arming.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_named_by_its_key_or_its_id() {
        let parse = |text: &str| text.parse::<NamedTask>();
        assert!(matches!(parse("Order@close@42"), Ok(NamedTask::Key(_))));
        let Ok(NamedTask::Id(arming)) = parse("753-1795459396881") else {
            panic!("expected an id");
        };
        assert_eq!((arming.row, arming.due.0), (753, 1_795_459_396_881));
        for wrong in ["", "753", "753-", "-5", "Order"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
