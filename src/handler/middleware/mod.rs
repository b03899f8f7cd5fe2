//! What stands around handlers: middleware, and hooks before and after.

mod scope;

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use async_trait::async_trait;

pub(super) use self::scope::ScopedMiddleware;
pub use self::scope::Selection;
use super::{Handler, HandlerError, TaskContext};
use crate::task::Outcome;

/// Stands around the handlers of an engine: sees each run before the handler does, and its result after.
///
/// What it returns is what counts: it may answer without calling [`Next::run`], and make an error of a success. A panic
/// in it is a panic of the run. It is inside the run's time limit, and ends with the run when that is ended from outside:
/// its future is dropped then, so what must happen in any case belongs into an [`after`](super::Handlers::after)
/// hook.
///
/// An async closure of context and [`Next`] is one:
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
/// As for [`Handler`]: the future is dropped when the run times out, loses its lease, or is still going on at the end of
/// a graceful stop.
#[async_trait]
pub trait Middleware: Send + Sync + 'static {
    /// Does what is to be done around the run, which `next` is.
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

/// The rest of a run: the middleware further inside, and the handler.
pub struct Next {
    layers: Layers,
    inside: usize,
    handler: Arc<dyn Handler>,
}

impl Next {
    /// Goes on with the run, and answers its result.
    pub async fn run(mut self, context: TaskContext) -> Result<(), HandlerError> {
        let Some(middleware) = self.layers.around(self.inside) else {
            return self.handler.run(context).await;
        };
        self.inside += 1;
        middleware.around(context, self).await
    }
}

/// A hook that sees how a run ended.
pub(in crate::handler) type After = dyn Fn(&TaskContext, &Outcome) + Send + Sync;

/// Everything that stands around one handler. Nothing, mostly; then it costs nothing.
#[derive(Clone, Default)]
pub struct Layers(Option<Arc<Stack>>);

#[derive(Clone, Default)]
struct Stack {
    /// The outermost first.
    around: Vec<Arc<dyn Middleware>>,
    after: Vec<Arc<After>>,
}

impl Layers {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Runs the handler inside of them.
    ///
    /// # Errors
    /// What the outermost one says, or the handler if there is none.
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

    /// Tells the hooks how a run ended. One that panics changes nothing.
    pub fn ended(&self, context: &TaskContext, outcome: &Outcome) {
        for after in self.0.iter().flat_map(|stack| &stack.after) {
            let told = catch_unwind(AssertUnwindSafe(|| after(context, outcome)));
            if told.is_err() {
                tracing::error!(
                    task.class_method = context.key().class_method(),
                    task.id = context.id(),
                    "a hook after the run panicked; the run's outcome stands"
                );
            }
        }
    }

    /// With another one, inside of those there are.
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

/// One thing that stands around handlers.
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
