//! What a registered handler says over the configuration about its own runs.

use std::sync::Arc;
use std::time::Duration;

use super::HandlerRegistry;
use crate::task::{Limits, RetryPolicy};

/// What is said about one `Class@method`; what is not said is as the configuration has it.
#[derive(Debug, Clone, Default)]
pub(super) struct Options {
    pub(super) retry: Option<Arc<RetryPolicy>>,
    pub(super) limits: Limits,
    pub(super) expire_after: Option<Duration>,
}

impl HandlerRegistry {
    /// When a task of `Class@method` is tried again, and when no more; over `[retry]`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use lapsed::{HandlerRegistry, RetryPolicy};
    ///
    /// let mut handlers = HandlerRegistry::new();
    /// handlers
    ///     .on("Order", "close", |_, (_id,): (u64,)| async { Ok(()) })
    ///     .retry("Order", "close", RetryPolicy {
    ///         max_attempts: 5,
    ///         ..RetryPolicy::exponential(Duration::from_secs(2), Duration::from_secs(600))
    ///     })
    ///     .timeout("Order", "close", Duration::from_secs(30))
    ///     .expire_after("Order", "close", Duration::from_secs(24 * 3600));
    /// ```
    ///
    /// # Panics
    /// If it is not registered, or the policy allows no run: mistakes of the program.
    pub fn retry(&mut self, class: &str, method: &str, policy: RetryPolicy) -> &mut Self {
        assert!(
            policy.max_attempts > 0,
            "retry policy of `{class}@{method}`: max_attempts is 0, expected at least 1"
        );
        self.options_of(class, method).retry = Some(Arc::new(policy));
        self
    }

    /// How long one run of `Class@method` may take; over `engine.timeout`.
    ///
    /// # Panics
    /// If it is not registered, or the limit is zero: mistakes of the program.
    pub fn timeout(&mut self, class: &str, method: &str, limit: Duration) -> &mut Self {
        assert!(
            !limit.is_zero(),
            "timeout of `{class}@{method}` is zero, expected more"
        );
        self.options_of(class, method).limits.timeout = Some(limit);
        self
    }

    /// How late a task of `Class@method` may start and still be of use. Later than so long after its due time (or its
    /// creation or redrive, if later) it is dead with the reason `expired`, and not run.
    ///
    /// # Panics
    /// If it is not registered, or the limit is zero: mistakes of the program.
    pub fn expire_after(&mut self, class: &str, method: &str, limit: Duration) -> &mut Self {
        assert!(
            !limit.is_zero(),
            "expire_after of `{class}@{method}` is zero, expected more"
        );
        self.options_of(class, method).expire_after = Some(limit);
        self
    }

    /// Limits the runs of `Class@method`: how many at a time, how many in a span, who comes first.
    ///
    /// ```
    /// use lapsed::{HandlerRegistry, TaskContext, task::Limits};
    ///
    /// let mut handlers = HandlerRegistry::new();
    /// handlers
    ///     .on("Mail", "send", |_: TaskContext, (_to,): (String,)| async { Ok(()) })
    ///     .limit("Mail", "send", Limits::new().concurrency(8).rate("50/s".parse()?));
    /// # Ok::<(), lapsed::task::RateError>(())
    /// ```
    ///
    /// # Panics
    /// If it is not registered: a mistake of the program.
    pub fn limit(&mut self, class: &str, method: &str, limits: Limits) -> &mut Self {
        let own = &mut self.options_of(class, method).limits;
        *own = Limits {
            timeout: limits.timeout.or(own.timeout),
            ..limits
        };
        self
    }

    /// What is said about a handler.
    pub(super) fn options(&self, name: &str) -> Options {
        self.options.get(name).cloned().unwrap_or_default()
    }

    fn options_of(&mut self, class: &str, method: &str) -> &mut Options {
        let name = format!("{class}@{method}");
        assert!(
            self.find(&name).is_some(),
            "`{name}` is not registered: register it first, then say how it runs"
        );
        self.options.entry(name).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "`Order@shut` is not registered")]
    fn a_name_that_is_not_registered_is_a_mistake() {
        let mut handlers = HandlerRegistry::new();
        handlers.on("Order", "close", |_, ()| async { Ok(()) });
        handlers.timeout("Order", "shut", Duration::from_secs(1));
    }
}
