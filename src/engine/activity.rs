//! Activity of the background tasks: what activates them, and how their passes went.

use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use crate::timer::Cause;

/// Declares the background tasks of an engine, in the order of their status.
macro_rules! activities {
    ($($name:ident),+ $(,)?) => {
        /// Activity of each background task of an engine.
        #[derive(Debug, Clone)]
        pub struct Activities {
            $(pub $name: Arc<Activity>),+
        }

        impl Default for Activities {
            fn default() -> Self {
                Self {
                    $($name: Arc::new(Activity::new(stringify!($name)))),+
                }
            }
        }

        impl Activities {
            /// Status of all background tasks, by name.
            pub fn status(&self) -> Vec<BackgroundStatus> {
                vec![$(self.$name.status()),+]
            }
        }
    };
}

activities!(
    adoption,
    arm_horizon,
    audit,
    history,
    lease_checks,
    lease_scan,
    look_ahead,
    membership,
    pauses,
    queue_gauges,
    rate_limits,
    recurring,
    retention,
    sweep,
    task_gauges,
);

/// Status of a background task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackgroundStatus {
    /// Name of the task.
    pub name: &'static str,
    /// Number of finished passes.
    pub passes: u64,
    /// Cause of the latest pass; `None` before the first.
    pub cause: Option<Cause>,
    /// Time since the latest pass started.
    pub started_ago: Option<Duration>,
    /// Duration of the latest finished pass.
    pub took: Option<Duration>,
    /// Error of the latest finished pass, if it failed.
    pub error: Option<String>,
}

/// Activity of one background task: requests for a pass, and the record of its passes.
#[derive(Debug)]
pub struct Activity {
    name: &'static str,
    /// The most urgent cause since the last request was taken.
    requested: Mutex<Option<Cause>>,
    changed: Notify,
    passes: Mutex<Passes>,
}

#[derive(Debug, Default)]
struct Passes {
    finished: u64,
    latest: Option<(Cause, Instant)>,
    took: Option<Duration>,
    error: Option<String>,
}

impl Activity {
    fn new(name: &'static str) -> Self {
        Self {
            name,
            requested: Mutex::default(),
            changed: Notify::new(),
            passes: Mutex::default(),
        }
    }

    /// Requests a pass now. Of several requests, the most urgent cause is kept.
    pub fn activate(&self, cause: Cause) {
        tracing::trace!(task = self.name, cause = cause.as_str(), "activated");
        let mut requested = self.requested();
        *requested = (*requested).max(Some(cause));
        drop(requested);
        self.changed.notify_one();
    }

    /// Waits for a request, and takes it.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn activated(&self) -> Cause {
        loop {
            let changed = self.changed.notified();
            if let Some(cause) = self.requested().take() {
                return cause;
            }
            changed.await;
        }
    }

    /// Waits for a request, at most for `interval`. Returns the cause of the next pass.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn next(&self, interval: Duration) -> Cause {
        let activated = timeout(interval, self.activated());
        activated.await.unwrap_or(Cause::Interval)
    }

    /// Cancels the request if this is its cause.
    pub fn cancel_request(&self, cause: Cause) {
        self.requested().take_if(|requested| *requested == cause);
    }

    /// True if a pass is requested for this cause.
    pub fn is_requested_for(&self, cause: Cause) -> bool {
        *self.requested() == Some(cause)
    }

    /// Runs a pass and records it. Returns its result.
    pub async fn pass<T, E: Display>(
        &self,
        cause: Cause,
        pass: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let started = Instant::now();
        self.passes().latest = Some((cause, started));
        let result = pass.await;
        let mut passes = self.passes();
        passes.finished += 1;
        passes.took = Some(started.elapsed());
        passes.error = result.as_ref().err().map(ToString::to_string);
        result
    }

    fn status(&self) -> BackgroundStatus {
        let passes = self.passes();
        BackgroundStatus {
            name: self.name,
            passes: passes.finished,
            cause: passes.latest.map(|(cause, _)| cause),
            started_ago: passes.latest.map(|(_, started)| started.elapsed()),
            took: passes.took,
            error: passes.error.clone(),
        }
    }

    fn requested(&self) -> MutexGuard<'_, Option<Cause>> {
        self.requested
            .lock()
            .expect("nothing panics while holding it")
    }

    fn passes(&self) -> MutexGuard<'_, Passes> {
        self.passes.lock().expect("nothing panics while holding it")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_most_urgent_cause_is_kept_until_it_is_taken() {
        let audit = Activity::new("audit");
        audit.activate(Cause::RedisChanged);
        audit.activate(Cause::Sentinel);
        assert_eq!(audit.activated().await, Cause::RedisChanged);
        audit.activate(Cause::Sentinel);
        assert_eq!(audit.activated().await, Cause::Sentinel);
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_request_the_next_pass_is_due_after_the_interval() {
        let sweep = Activity::new("sweep");
        let (asked, interval) = (Instant::now(), Duration::from_secs(1));
        sweep.activate(Cause::Overflow);
        assert_eq!(sweep.next(interval).await, Cause::Overflow);
        assert_eq!(sweep.next(interval).await, Cause::Interval);
        assert_eq!(asked.elapsed(), interval);
    }

    #[tokio::test(start_paused = true)]
    async fn the_status_describes_the_latest_pass() {
        let sweep = Activity::new("sweep");
        let failing = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Err::<(), _>("gone")
        };
        sweep.pass(Cause::Start, failing).await.unwrap_err();
        let failed = BackgroundStatus {
            name: "sweep",
            passes: 1,
            cause: Some(Cause::Start),
            started_ago: Some(Duration::from_secs(1)),
            took: Some(Duration::from_secs(1)),
            error: Some("gone".to_owned()),
        };
        assert_eq!(sweep.status(), failed);
        let passed = sweep.pass(Cause::Interval, async { Ok::<_, String>(7) });
        assert_eq!(passed.await, Ok(7));
        let status = sweep.status();
        assert_eq!((status.passes, status.cause), (2, Some(Cause::Interval)));
        assert_eq!((status.took, status.error), (Some(Duration::ZERO), None));
    }
}
