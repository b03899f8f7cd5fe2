//! The handlers of a program, with the state they share.

use std::future::Future;
use std::sync::Arc;

use super::options::Registration;
use super::registry::Registry;
use super::{Handler, HandlerError, IntoHandler, Middleware, Selection, TaskContext};
use crate::task::{Outcome, Takes, TaskName};

/// The handlers of a program by task type, and the state they share.
///
/// A handler is an async function. Its parameters are extracted from the run: the [`TaskContext`], the
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
/// A handler with other arguments does not compile:
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
/// Nor does one with a state of another type:
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
    registry: Registry,
    state: S,
}

impl Handlers {
    /// No handlers, and no state.
    pub fn new() -> Self {
        Self::default()
    }
}

impl<S: Clone> Handlers<S> {
    /// No handlers yet. Each one will get a clone of the state.
    pub fn with_state(state: S) -> Self {
        Self {
            registry: Registry::default(),
            state,
        }
    }

    /// Registers an async function as the handler of a task type.
    ///
    /// The type is a [`TaskType`](crate::TaskType), whose arguments the function must take, or class and method as
    /// texts; then the function alone determines the arguments:
    ///
    /// ```
    /// use lapsed::{Handlers, TaskContext};
    ///
    /// let mut handlers = Handlers::new();
    /// handlers.on(("Order", "close"), |ctx: TaskContext, (id, reason): (u64, String)| async move {
    ///     println!("closing {id} because of {reason}, attempt {}", ctx.attempt());
    ///     Ok(())
    /// });
    /// ```
    ///
    /// # Panics
    /// If the type has a handler already, or the texts do not fit the grammar of keys.
    pub fn on<A, M>(
        &mut self,
        tasks: impl Takes<A>,
        handler: impl IntoHandler<A, M, S>,
    ) -> Registration<'_> {
        let (class, method) = tasks.class_and_method();
        let handler = handler.into_handler(self.state.clone());
        self.registry.register(class, method, handler)
    }

    /// Registers a [`Handler`] for a task type.
    ///
    /// # Panics
    /// As for [`on`](Self::on).
    pub fn on_handler(&mut self, tasks: impl TaskName, handler: impl Handler) -> Registration<'_> {
        let (class, method) = tasks.class_and_method();
        self.registry.register(class, method, Arc::new(handler))
    }
}

impl<S> Handlers<S> {
    /// Adds a middleware for everything that the engine runs, including the targets of its routes, inside the ones
    /// added before.
    pub fn wrap(&mut self, middleware: impl Middleware) -> &mut Self {
        Selection::all(&mut self.registry.middleware).wrap(middleware);
        self
    }

    /// Adds a hook that is called before each run. If it returns an error, the handler is not called, and the error is
    /// the result of the run.
    ///
    /// ```
    /// use lapsed::{HandlerError, Handlers};
    /// use std::time::Duration;
    ///
    /// let mut handlers = Handlers::new();
    /// handlers.before(|ctx| async move {
    ///     match ctx.tag() {
    ///         Some("frozen") => Err(HandlerError::retry_after("tenant is frozen", Duration::from_secs(60))),
    ///         _ => Ok(()),
    ///     }
    /// });
    /// ```
    pub fn before<F, R>(&mut self, hook: F) -> &mut Self
    where
        F: Fn(TaskContext) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), HandlerError>> + Send + 'static,
    {
        Selection::all(&mut self.registry.middleware).before(hook);
        self
    }

    /// Adds a hook that is called after each run with its outcome, also after a panic, a timeout and a lost lease. It
    /// cannot change the outcome. It must be quick, since the run keeps its slot until the hook returns.
    pub fn after<F>(&mut self, hook: F) -> &mut Self
    where
        F: Fn(&TaskContext, &Outcome) + Send + Sync + 'static,
    {
        Selection::all(&mut self.registry.middleware).after(hook);
        self
    }

    /// Selects the tasks of one type, to add middleware and hooks for them.
    ///
    /// # Panics
    /// If it is named by texts that do not fit the grammar of keys.
    pub fn only(&mut self, tasks: impl TaskName) -> Selection<'_> {
        let (class, method) = tasks.class_and_method();
        Selection::only(&mut self.registry.middleware, class, method)
    }

    /// Selects the tasks whose key matches a regular expression, to add middleware and hooks for them.
    ///
    /// # Panics
    /// If this is not a regular expression.
    pub fn matching(&mut self, pattern: &str) -> Selection<'_> {
        Selection::matching(&mut self.registry.middleware, pattern)
    }

    pub(crate) fn registry(&self) -> &Registry {
        &self.registry
    }

    pub(super) fn into_registry(self) -> Registry {
        self.registry
    }
}
