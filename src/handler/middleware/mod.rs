//! Middleware around handlers, and hooks before and after them.

mod scope;

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use async_trait::async_trait;

pub(super) use self::scope::ScopedMiddleware;
pub use self::scope::Selection;
use super::{Handler, HandlerError, TaskContext};
use crate::task::Outcome;

/// Wraps the handlers of an engine: it is called before the handler, and sees its result.
///
/// What it returns is the result of the run. It may return without calling [`Next::run`], and turn a success into an error.
/// A panic in it is a panic of the run. It is inside the time limit of the run, and its future is dropped when the run is
/// interrupted. Work that must happen in any case belongs in an [`after`](super::Handlers::after) hook.
///
/// An async closure of context and [`Next`] is a middleware:
///
/// ```
/// use lapsed::handler::Next;
/// use lapsed::{Handlers, TaskContext};
///
/// let mut handlers = Handlers::new();
/// handlers.wrap(|ctx: TaskContext, next: Next| async move {
///     println!("{} begins", ctx.key());
///     let result = next.run(ctx.clone()).await;
///     println!("{} ends: {result:?}", ctx.key());
///     result
/// });
/// ```
///
/// # Cancel safety
/// As for [`Handler`]: the future is dropped when the run times out or loses its lease, and when it has not ended by the
/// end of a graceful stop.
#[async_trait]
pub trait Middleware: Send + Sync + 'static {
    /// Wraps one run. `next` is the rest of it.
    ///
    /// # Errors
    /// The result of the run.
    async fn around(&self, context: TaskContext, next: Next) -> Result<(), HandlerError>;
}

#[async_trait]
impl<F, R> Middleware for F
where
    F: Fn(TaskContext, Next) -> R + Send + Sync + 'static,
    R: Future<Output = Result<(), HandlerError>> + Send + 'static,
{
    async fn around(&self, context: TaskContext, next: Next) -> Result<(), HandlerError> {
        self(context, next).await
    }
}

/// The rest of a run: the inner middleware, and the handler.
pub struct Next {
    layers: Layers,
    inside: usize,
    handler: Arc<dyn Handler>,
}

impl Next {
    /// Continues the run, and returns its result.
    ///
    /// # Errors
    /// That of the inner middleware or the handler.
    ///
    /// # Cancel safety
    /// Dropping the future drops the handler's.
    pub async fn run(mut self, context: TaskContext) -> Result<(), HandlerError> {
        let Some(middleware) = self.layers.around(self.inside) else {
            return self.handler.run(context).await;
        };
        self.inside += 1;
        middleware.around(context, self).await
    }
}

/// A hook after a run.
pub(in crate::handler) type After = dyn Fn(&TaskContext, &Outcome) + Send + Sync;

/// The middleware and hooks of one handler. Costs nothing if there are none.
#[derive(Clone, Default)]
pub struct Layers(Option<Arc<Stack>>);

#[derive(Clone, Default)]
struct Stack {
    /// Outermost first.
    around: Vec<Arc<dyn Middleware>>,
    after: Vec<Arc<After>>,
}

impl Layers {
    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Runs the handler inside the middleware.
    ///
    /// # Errors
    /// That of the outermost middleware, or of the handler if there is none.
    ///
    /// # Cancel safety
    /// Dropping the future drops the handler's.
    pub async fn run(
        &self,
        handler: &Arc<dyn Handler>,
        context: TaskContext,
    ) -> Result<(), HandlerError> {
        if self.is_empty() {
            return handler.run(context).await;
        }
        let next = Next {
            layers: self.clone(),
            inside: 0,
            handler: Arc::clone(handler),
        };
        next.run(context).await
    }

    /// Calls the hooks after a run. A panic in a hook is logged, and changes nothing.
    pub fn ended(&self, context: &TaskContext, outcome: &Outcome) {
        for after in self.0.iter().flat_map(|stack| &stack.after) {
            let called = catch_unwind(AssertUnwindSafe(|| after(context, outcome)));
            if called.is_err() {
                tracing::error!(
                    task.class_method = context.key().class_method(),
                    task.id = context.id(),
                    "a hook after the run panicked; the run's outcome is unchanged"
                );
            }
        }
    }

    /// Adds a layer inside the existing ones.
    pub(in crate::handler) fn push(&mut self, layer: &Layer) {
        let stack = Arc::make_mut(self.0.get_or_insert_default());
        match layer {
            Layer::Around(middleware) => stack.around.push(Arc::clone(middleware)),
            Layer::After(after) => stack.after.push(Arc::clone(after)),
        }
    }

    fn around(&self, index: usize) -> Option<Arc<dyn Middleware>> {
        self.0.as_ref()?.around.get(index).cloned()
    }
}

/// A middleware or a hook.
#[derive(Clone)]
pub(in crate::handler) enum Layer {
    Around(Arc<dyn Middleware>),
    After(Arc<After>),
}

impl Layer {
    pub(in crate::handler) fn around(middleware: impl Middleware) -> Self {
        Self::Around(Arc::new(middleware))
    }

    pub(in crate::handler) fn before<F, R>(hook: F) -> Self
    where
        F: Fn(TaskContext) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), HandlerError>> + Send + 'static,
    {
        Self::around(Before(hook))
    }
}

struct Before<F>(F);

#[async_trait]
impl<F, R> Middleware for Before<F>
where
    F: Fn(TaskContext) -> R + Send + Sync + 'static,
    R: Future<Output = Result<(), HandlerError>> + Send + 'static,
{
    async fn around(&self, context: TaskContext, next: Next) -> Result<(), HandlerError> {
        (self.0)(context.clone()).await?;
        next.run(context).await
    }
}
