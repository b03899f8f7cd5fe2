//! Handlers of [task types](crate::TaskType), with the state they share.

use std::future::Future;
use std::time::Duration;

use super::{
    Handler, HandlerError, HandlerRegistry, IntoHandler, Middleware, Selection, TaskContext,
};
use crate::task::{Limits, Outcome, Rate, RetryPolicy, Takes, TaskName};

/// What this process can run by itself, by task type, and the state that it runs on.
///
/// A handler is an async function. Its parameters say what it wants: the [`TaskContext`], the
/// [`State`](super::State), the [`Payload`](super::Payload), and last the arguments of the task type.
///
/// ```
/// use std::time::Duration;
/// use lapsed::{HandlerError, Handlers, Payload, RetryPolicy, State, TaskContext, TaskType};
///
/// const CLOSE: TaskType<(u64,)> = TaskType::new("Order", "close");
/// const MAIL: TaskType<(u64, String)> = TaskType::new("Order", "mail");
/// const TICK: TaskType = TaskType::new("Clock", "tick");
///
/// #[derive(Clone)]
/// struct Shop; // a pool of connections, for example
///
/// #[derive(serde::Deserialize)]
/// struct Mail { subject: String }
///
/// async fn close(ctx: TaskContext, State(shop): State<Shop>, order: u64) -> Result<(), HandlerError> {
///     println!("closing {order}, attempt {}", ctx.attempt());
///     Ok(())
/// }
///
/// async fn mail(Payload(mail): Payload<Mail>, (order, to): (u64, String)) -> Result<(), HandlerError> {
///     println!("{} to {to} about {order}", mail.subject);
///     Ok(())
/// }
///
/// let mut handlers = Handlers::with_state(Shop);
/// handlers.on(CLOSE, close).timeout(Duration::from_secs(30)).concurrency(8);
/// handlers.on(MAIL, mail).retry(RetryPolicy::never());
/// handlers.on(TICK, || async { Ok(()) });
/// ```
///
/// A handler of other arguments does not compile:
///
/// ```compile_fail,E0277
/// use lapsed::{HandlerError, Handlers, TaskType};
///
/// const CLOSE: TaskType<(u64,)> = TaskType::new("Order", "close");
///
/// async fn close(order: String) -> Result<(), HandlerError> {
///     Ok(())
/// }
///
/// Handlers::new().on(CLOSE, close);
/// ```
///
/// Nor does one that wants a state that there is not:
///
/// ```compile_fail,E0277
/// use lapsed::{HandlerError, Handlers, State, TaskType};
///
/// const TICK: TaskType = TaskType::new("Clock", "tick");
///
/// async fn tick(State(text): State<String>) -> Result<(), HandlerError> {
///     Ok(())
/// }
///
/// Handlers::with_state(42).on(TICK, tick);
/// ```
#[derive(Debug, Clone, Default)]
pub struct Handlers<S = ()> {
    registry: HandlerRegistry,
    state: S,
}

impl Handlers {
    /// None yet, and no state.
    pub fn new() -> Self {
        Self::default()
    }
}

impl<S: Clone> Handlers<S> {
    /// None yet. Each handler gets a clone of the state.
    pub fn with_state(state: S) -> Self {
        Self {
            registry: HandlerRegistry::new(),
            state,
        }
    }

    /// Runs tasks of this type by an async function. The type is a [`TaskType`](crate::TaskType), or class and method as
    /// texts; then the function alone says what the arguments are.
    ///
    /// # Panics
    /// If the type has a handler already, or the texts are no names: mistakes of the program.
    pub fn on<A, M>(
        &mut self,
        tasks: impl Takes<A>,
        handler: impl IntoHandler<A, M, S>,
    ) -> Registration<'_> {
        let handler = handler.into_handler(self.state.clone());
        self.registration(&tasks, |registry, class, method| {
            registry.on_shared(class, method, handler);
        })
    }

    /// Runs tasks of this type by a [`Handler`].
    ///
    /// # Panics
    /// As for [`on`](Self::on).
    pub fn on_handler(&mut self, tasks: impl TaskName, handler: impl Handler) -> Registration<'_> {
        self.registration(&tasks, |registry, class, method| {
            registry.on_handler(class, method, handler);
        })
    }

    fn registration(
        &mut self,
        tasks: &impl TaskName,
        register: impl FnOnce(&mut HandlerRegistry, &str, &str),
    ) -> Registration<'_> {
        let (class, method) = tasks.class_and_method();
        register(&mut self.registry, class, method);
        Registration {
            registry: &mut self.registry,
            class: class.to_owned(),
            method: method.to_owned(),
        }
    }
}

impl<S> Handlers<S> {
    /// As [`HandlerRegistry::wrap`].
    pub fn wrap(&mut self, middleware: impl Middleware) -> &mut Self {
        self.registry.wrap(middleware);
        self
    }

    /// As [`HandlerRegistry::before`].
    pub fn before<F, R>(&mut self, hook: F) -> &mut Self
    where
        F: Fn(TaskContext) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), HandlerError>> + Send + 'static,
    {
        self.registry.before(hook);
        self
    }

    /// As [`HandlerRegistry::after`].
    pub fn after<F>(&mut self, hook: F) -> &mut Self
    where
        F: Fn(&TaskContext, &Outcome) + Send + Sync + 'static,
    {
        self.registry.after(hook);
        self
    }

    /// The tasks of one type, to put middleware and hooks around.
    ///
    /// # Panics
    /// If it is named by texts that are no names: a mistake of the program.
    pub fn only(&mut self, tasks: impl TaskName) -> Selection<'_> {
        let (class, method) = tasks.class_and_method();
        self.registry.only(class, method)
    }

    /// As [`HandlerRegistry::matching`].
    ///
    /// # Panics
    /// If this is no regular expression: a mistake of the program.
    pub fn matching(&mut self, pattern: &str) -> Selection<'_> {
        self.registry.matching(pattern)
    }
}

impl<S> From<Handlers<S>> for HandlerRegistry {
    fn from(handlers: Handlers<S>) -> Self {
        handlers.registry
    }
}

impl<S> AsRef<HandlerRegistry> for Handlers<S> {
    fn as_ref(&self) -> &HandlerRegistry {
        &self.registry
    }
}

/// A handler that was just registered: how its tasks run, over the configuration.
pub struct Registration<'a> {
    registry: &'a mut HandlerRegistry,
    class: String,
    method: String,
}

impl Registration<'_> {
    /// When a failed task is tried again, and when no more; over `[retry]`.
    ///
    /// # Panics
    /// If the policy allows no run: a mistake of the program.
    pub fn retry(self, policy: RetryPolicy) -> Self {
        self.registry.retry(&self.class, &self.method, policy);
        self
    }

    /// How long one run may take; over `engine.timeout`.
    ///
    /// # Panics
    /// If it is zero: a mistake of the program.
    pub fn timeout(self, limit: Duration) -> Self {
        self.registry.timeout(&self.class, &self.method, limit);
        self
    }

    /// How late a task may start and still be of use: see [`HandlerRegistry::expire_after`].
    ///
    /// # Panics
    /// If it is zero: a mistake of the program.
    pub fn expire_after(self, limit: Duration) -> Self {
        self.registry.expire_after(&self.class, &self.method, limit);
        self
    }

    /// Most runs at a time in this daemon.
    ///
    /// # Panics
    /// If it is 0: a mistake of the program.
    pub fn concurrency(self, runs: u32) -> Self {
        self.change_limits(|limits| limits.concurrency(runs))
    }

    /// Most starts in a span, over all daemons.
    pub fn rate(self, rate: Rate) -> Self {
        self.change_limits(|limits| limits.rate(rate))
    }

    /// Of the tasks that may start, those of the highest priority start first; 0 unless it is set.
    pub fn priority(self, priority: i8) -> Self {
        self.change_limits(|limits| limits.priority(priority))
    }

    /// Puts a middleware around these tasks, inside of those that are there.
    pub fn wrap(self, middleware: impl Middleware) -> Self {
        self.registry
            .only(&self.class, &self.method)
            .wrap(middleware);
        self
    }

    /// Calls a hook before each run of these tasks: see [`Selection::before`].
    pub fn before<F, R>(self, hook: F) -> Self
    where
        F: Fn(TaskContext) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), HandlerError>> + Send + 'static,
    {
        self.registry.only(&self.class, &self.method).before(hook);
        self
    }

    /// Calls a hook after each run of these tasks: see [`Selection::after`].
    pub fn after<F>(self, hook: F) -> Self
    where
        F: Fn(&TaskContext, &Outcome) + Send + Sync + 'static,
    {
        self.registry.only(&self.class, &self.method).after(hook);
        self
    }

    fn change_limits(self, change: impl FnOnce(Limits) -> Limits) -> Self {
        let name = format!("{}@{}", self.class, self.method);
        let limits = change(self.registry.options(&name).limits);
        self.registry.limit(&self.class, &self.method, limits);
        self
    }
}
