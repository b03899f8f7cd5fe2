//! How the tasks of one handler run, over the configuration.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use super::middleware::{ScopedMiddleware, Selection};
use super::{HandlerError, Middleware, TaskContext};
use crate::task::{Limits, Outcome, Rate, RetryPolicy};

/// Options of one handler. An option that is not set is taken from the configuration.
#[derive(Debug, Clone, Default)]
pub(super) struct Options {
    pub(super) retry: Option<Arc<RetryPolicy>>,
    pub(super) limits: Limits,
    pub(super) expire_after: Option<Duration>,
}

/// A handler that was just registered. Its methods set how its tasks run, over the configuration.
///
/// ```
/// use std::time::Duration;
/// use lapsed::{Handlers, RetryPolicy, TaskType};
///
/// const CLOSE: TaskType<(u64,)> = TaskType::new("Order", "close");
///
/// let mut handlers = Handlers::new();
/// handlers
///     .on(CLOSE, |_order: u64| async { Ok(()) })
///     .retry(RetryPolicy {
///         max_attempts: 5,
///         ..RetryPolicy::exponential(Duration::from_secs(2), Duration::from_secs(600))
///     })
///     .timeout(Duration::from_secs(30))
///     .expire_after(Duration::from_secs(24 * 3600))
///     .concurrency(8)
///     .rate("50/s".parse()?);
/// # Ok::<(), lapsed::task::RateError>(())
/// ```
pub struct Registration<'a> {
    pub(super) class_method: String,
    pub(super) options: &'a mut Options,
    pub(super) middleware: &'a mut ScopedMiddleware,
}

impl Registration<'_> {
    /// Sets when a failed task is tried again, over `[retry]`.
    ///
    /// # Panics
    /// If the policy allows no run.
    pub fn retry(self, policy: RetryPolicy) -> Self {
        assert!(
            policy.allows_a_run(),
            "retry policy of `{}` allows no run, expected at least one",
            self.class_method
        );
        self.options.retry = Some(Arc::new(policy));
        self
    }

    /// Sets the time limit of one run, over `engine.timeout`.
    ///
    /// # Panics
    /// If it is zero.
    pub fn timeout(self, limit: Duration) -> Self {
        assert!(
            !limit.is_zero(),
            "timeout of `{}` is zero, expected more",
            self.class_method
        );
        self.options.limits.timeout = Some(limit);
        self
    }

    /// Sets how late a task may start. A task that is further behind its due time (or its creation or redrive, if
    /// later) is not run: it is dead with the reason `expired`.
    ///
    /// # Panics
    /// If it is zero.
    pub fn expire_after(self, limit: Duration) -> Self {
        assert!(
            !limit.is_zero(),
            "expire_after of `{}` is zero, expected more",
            self.class_method
        );
        self.options.expire_after = Some(limit);
        self
    }

    /// Limits the number of concurrent runs in this daemon.
    ///
    /// # Panics
    /// If it is 0.
    pub fn concurrency(self, runs: u32) -> Self {
        self.options.limits = self.options.limits.concurrency(runs);
        self
    }

    /// Limits the rate of starts, over all daemons.
    pub fn rate(self, rate: Rate) -> Self {
        self.options.limits = self.options.limits.rate(rate);
        self
    }

    /// Sets the priority, 0 by default. Of the tasks that may start, those with the highest priority start first.
    pub fn priority(self, priority: i8) -> Self {
        self.options.limits = self.options.limits.priority(priority);
        self
    }

    /// Adds a middleware for these tasks, inside the ones added before.
    pub fn wrap(self, middleware: impl Middleware) -> Self {
        Selection::named(self.middleware, &self.class_method).wrap(middleware);
        self
    }

    /// Adds a hook that is called before each run of these tasks: see [`Selection::before`].
    pub fn before<F, R>(self, hook: F) -> Self
    where
        F: Fn(TaskContext) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), HandlerError>> + Send + 'static,
    {
        Selection::named(self.middleware, &self.class_method).before(hook);
        self
    }

    /// Adds a hook that is called after each run of these tasks: see [`Selection::after`].
    pub fn after<F>(self, hook: F) -> Self
    where
        F: Fn(&TaskContext, &Outcome) + Send + Sync + 'static,
    {
        Selection::named(self.middleware, &self.class_method).after(hook);
        self
    }
}
