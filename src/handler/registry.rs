//! Handlers in this process, by exact class and method.

use std::collections::HashMap;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;

use async_trait::async_trait;

use super::options::Options;
use super::{FromArgs, Handler, HandlerError, TaskContext};

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
        let key = crate::task::TaskKey::build(class, method, [""; 0])
            .unwrap_or_else(|error| panic!("register handler: {error}"));
        let before = self
            .handlers
            .insert(key.as_str().to_owned(), Arc::new(handler));
        assert!(
            before.is_none(),
            "register handler: `{key}` is registered already"
        );
        self
    }

    /// The handler of `Class@method`.
    pub(super) fn find(&self, class_method: &str) -> Option<(&str, &Arc<dyn Handler>)> {
        self.handlers
            .get_key_value(class_method)
            .map(|(name, handler)| (name.as_str(), handler))
    }

    /// `Class@method` of everything registered, in no order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.handlers.keys().map(String::as_str)
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
