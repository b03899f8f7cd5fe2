//! Handlers in this process, by exact class and method.

use std::collections::HashMap;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;

use async_trait::async_trait;

use super::middleware::{Layers, ScopedMiddleware, Selection};
use super::options::Options;
use super::{FromArgs, Handler, HandlerError, Middleware, TaskContext};
use crate::task::{Outcome, TaskKey};
use crate::trace;

/// What this process can run by itself. A key from Redis only ever *selects* among what is registered
/// here: no name is turned into code.
///
/// ```
/// use lapsed::{HandlerRegistry, TaskContext};
///
/// let mut handlers = HandlerRegistry::new();
/// handlers.on("Order", "close", |ctx: TaskContext, (id, reason): (u64, String)| async move {
///     println!("closing {id} because {reason}, attempt {}", ctx.attempt());
///     Ok(())
/// });
/// ```
#[derive(Default, Clone)]
pub struct HandlerRegistry {
    handlers: HashMap<String, Arc<dyn Handler>>,
    middleware: ScopedMiddleware,
    /// By the same names; most have none.
    pub(super) options: HashMap<String, Options>,
}

impl HandlerRegistry {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs `Class@method` by an async function of the context and the typed arguments: a tuple of up
    /// to eight that implement [`FromStr`](std::str::FromStr), or a `Vec`.
    ///
    /// # Panics
    /// If the class and method are registered already, or are no names: mistakes of the program.
    pub fn on<A, F, R>(&mut self, class: &str, method: &str, function: F) -> &mut Self
    where
        A: FromArgs,
        F: Fn(TaskContext, A) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), HandlerError>> + Send + 'static,
    {
        self.on_handler(
            class,
            method,
            Typed {
                function,
                args: PhantomData,
            },
        )
    }

    /// Runs `Class@method` by a [`Handler`].
    ///
    /// # Panics
    /// As for [`on`](Self::on).
    pub fn on_handler(&mut self, class: &str, method: &str, handler: impl Handler) -> &mut Self {
        self.on_shared(class, method, Arc::new(handler))
    }

    pub(super) fn on_shared(
        &mut self,
        class: &str,
        method: &str,
        handler: Arc<dyn Handler>,
    ) -> &mut Self {
        let key = TaskKey::build(class, method, [""; 0])
            .unwrap_or_else(|error| panic!("register handler: {error}"));
        let before = self.handlers.insert(key.as_str().to_owned(), handler);
        assert!(
            before.is_none(),
            "register handler: `{key}` is registered already"
        );
        self
    }

    /// Puts a middleware around everything that this engine runs, the targets of its routes included, inside of those
    /// that were registered before.
    pub fn wrap(&mut self, middleware: impl Middleware) -> &mut Self {
        Selection::all(&mut self.middleware).wrap(middleware);
        self
    }

    /// Calls a hook before each run. If it returns an error, the handler does not run, and the error is the outcome.
    ///
    /// ```
    /// use lapsed::{HandlerError, HandlerRegistry};
    /// use std::time::Duration;
    ///
    /// let mut handlers = HandlerRegistry::new();
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
        Selection::all(&mut self.middleware).before(hook);
        self
    }

    /// Calls a hook after each run, with how it ended: panics, time-outs and lost leases included. It changes nothing
    /// about that, and must be quick: the run's slot waits for it.
    pub fn after<F>(&mut self, hook: F) -> &mut Self
    where
        F: Fn(&TaskContext, &Outcome) + Send + Sync + 'static,
    {
        Selection::all(&mut self.middleware).after(hook);
        self
    }

    /// The tasks of one class and method, to put middleware and hooks around.
    ///
    /// # Panics
    /// If these are no names: a mistake of the program.
    pub fn only(&mut self, class: &str, method: &str) -> Selection<'_> {
        Selection::only(&mut self.middleware, class, method)
    }

    /// The tasks whose key matches a regular expression, to put middleware and hooks around.
    ///
    /// # Panics
    /// If this is no regular expression: a mistake of the program.
    pub fn matching(&mut self, pattern: &str) -> Selection<'_> {
        Selection::matching(&mut self.middleware, pattern)
    }

    /// Runs the handler of this task inside of everything that is registered around it, as the engine would, in a test
    /// for example. `None` if no handler is registered for it.
    pub async fn run(&self, context: TaskContext) -> Option<Result<(), HandlerError>> {
        let handler = self.find(context.key().class_method())?;
        let layers = self.layers_of(context.key(), &Layers::default());
        let trace = context.traceparent();
        Some(trace::within(trace, layers.run(handler, context)).await)
    }

    /// What stands around this task, inside of `outside`.
    pub(super) fn layers_of(&self, key: &TaskKey, outside: &Layers) -> Layers {
        self.middleware.of(key, outside)
    }

    /// Everything registered.
    pub(super) fn all(&self) -> impl Iterator<Item = (&str, &Arc<dyn Handler>)> {
        let all = self.handlers.iter();
        all.map(|(name, handler)| (name.as_str(), handler))
    }

    /// The handler of `Class@method`.
    pub(super) fn find(&self, class_method: &str) -> Option<&Arc<dyn Handler>> {
        self.handlers.get(class_method)
    }

    /// `Class@method` of everything registered, in no order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.handlers.keys().map(String::as_str)
    }
}

impl AsRef<Self> for HandlerRegistry {
    fn as_ref(&self) -> &Self {
        self
    }
}

impl std::fmt::Debug for HandlerRegistry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

struct Typed<F, A> {
    function: F,
    args: PhantomData<fn() -> A>,
}

#[async_trait]
impl<F, A, R> Handler for Typed<F, A>
where
    A: FromArgs,
    F: Fn(TaskContext, A) -> R + Send + Sync + 'static,
    R: Future<Output = Result<(), HandlerError>> + Send + 'static,
{
    async fn run(&self, context: TaskContext) -> Result<(), HandlerError> {
        let args = {
            let texts: Vec<&str> = context.key().args().collect();
            A::from_args(&texts)?
        };
        (self.function)(context, args).await
    }
}
