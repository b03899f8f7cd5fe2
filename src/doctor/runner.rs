//! Check runner of one server: collects findings and bounds the time of each query.

use std::error::Error;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use lapsed::diagnosis::Finding;
use lapsed::ledger::migrate::MigrateError;
use lapsed_redis::RedisError;

/// Time limit of one check.
pub(super) const CHECK_WITHIN: Duration = Duration::from_secs(5);

pub(super) struct Runner {
    pub(super) findings: Vec<Finding>,
    until: Instant,
}

/// What a check finds: one finding, several or none.
pub(super) struct Findings(Vec<Finding>);

impl From<Finding> for Findings {
    fn from(finding: Finding) -> Self {
        Self(vec![finding])
    }
}

impl From<Option<Finding>> for Findings {
    fn from(finding: Option<Finding>) -> Self {
        Self(finding.into_iter().collect())
    }
}

impl From<Vec<Finding>> for Findings {
    fn from(findings: Vec<Finding>) -> Self {
        Self(findings)
    }
}

/// The server stopped answering: its remaining checks are skipped. The finding has been added.
#[derive(Debug)]
pub(super) struct Unresponsive;

/// Why a query failed.
pub(super) enum QueryError {
    /// The connection is lost.
    Lost(String),
    /// The server refuses this query.
    Refused(String),
}

impl Runner {
    pub(super) fn new(until: Instant) -> Self {
        Self {
            findings: Vec::new(),
            until,
        }
    }

    /// A runner with the same time limit, for one of several servers.
    pub(super) fn part(&self) -> Self {
        Self::new(self.until)
    }

    pub(super) fn add(&mut self, findings: impl IntoIterator<Item = Finding>) {
        self.findings.extend(findings);
    }

    /// Runs `work` within the time limits; `None` after a timeout.
    pub(super) async fn bounded<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let left = self.until.saturating_duration_since(Instant::now());
        timeout(CHECK_WITHIN.min(left), work).await.ok()
    }

    /// Runs the query of a check, and adds what `judge` makes of its answer.
    pub(super) async fn check<T, E: Into<QueryError>, F: Into<Findings>>(
        &mut self,
        check: &'static str,
        question: impl Future<Output = Result<T, E>>,
        judge: impl FnOnce(T) -> F,
    ) -> Result<(), Unresponsive> {
        if let Some(answer) = self.query(&[check], question).await? {
            self.add(judge(answer).into().0);
        }
        Ok(())
    }

    /// Runs the query that `checks` need. A refusal adds a note for each of them and returns `None`.
    pub(super) async fn query<T, E: Into<QueryError>>(
        &mut self,
        checks: &[&'static str],
        question: impl Future<Output = Result<T, E>>,
    ) -> Result<Option<T>, Unresponsive> {
        let why = match self.bounded(question).await {
            Some(Ok(answer)) => return Ok(Some(answer)),
            Some(Err(error)) => match error.into() {
                QueryError::Refused(why) => {
                    self.add(checks.iter().map(|check| Finding::unknown(check, &why)));
                    return Ok(None);
                }
                QueryError::Lost(why) => why,
            },
            None => "no answer in time".to_owned(),
        };
        let check = checks.first().copied().unwrap_or("doctor");
        self.add([
            Finding::error(check, format!("the server stopped answering: {why}")).remedy(
                "check the server, then run `lapsed doctor` again: the remaining checks were skipped",
            ),
        ]);
        Err(Unresponsive)
    }
}

impl From<RedisError> for QueryError {
    fn from(error: RedisError) -> Self {
        match error {
            RedisError::Unreachable(_) | RedisError::Loading(_) => Self::Lost(words(&error)),
            _ => Self::Refused(words(&error)),
        }
    }
}

impl From<sqlx::Error> for QueryError {
    fn from(error: sqlx::Error) -> Self {
        match error {
            sqlx::Error::Database(_)
            | sqlx::Error::RowNotFound
            | sqlx::Error::ColumnDecode { .. }
            | sqlx::Error::ColumnNotFound(_)
            | sqlx::Error::Decode(_) => Self::Refused(words(&error)),
            _ => Self::Lost(words(&error)),
        }
    }
}

impl From<MigrateError> for QueryError {
    fn from(error: MigrateError) -> Self {
        match error {
            MigrateError::Sql { source, .. } => source.into(),
            other => Self::Refused(words(&other)),
        }
    }
}

/// Text of an error and its sources, without repetitions.
pub(super) fn words(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = error.source();
    }
    text
}
