//! The handlers of this process by `Class@method`, with their options and middleware.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use super::middleware::{Layers, ScopedMiddleware};
use super::options::{Options, Registration};
use super::{Handler, HandlerError, TaskContext};
use crate::task::TaskKey;

/// Registered handlers. A key from Redis only *selects* among them: no name is turned into code.
#[derive(Default, Clone)]
pub(crate) struct Registry {
    handlers: HashMap<String, Registered>,
    pub(super) middleware: ScopedMiddleware,
}

/// A handler and its options.
#[derive(Clone)]
pub(super) struct Registered {
    pub handler: Arc<dyn Handler>,
    pub options: Options,
}

impl Registry {
    /// Registers a handler.
    ///
    /// # Panics
    /// If there is one of this class and method already, or they do not fit the grammar of keys.
    pub(super) fn register(
        &mut self,
        class: &str,
        method: &str,
        handler: Arc<dyn Handler>,
    ) -> Registration<'_> {
        let key = TaskKey::build(class, method, [""; 0])
            .unwrap_or_else(|error| panic!("register handler: {error}"));
        let Entry::Vacant(vacant) = self.handlers.entry(key.to_string()) else {
            panic!("register handler: `{key}` is registered already");
        };
        let registered = vacant.insert(Registered {
            handler,
            options: Options::default(),
        });
        Registration {
            class_method: key.to_string(),
            options: &mut registered.options,
            middleware: &mut self.middleware,
        }
    }

    /// Runs the handler of this task inside its middleware, as the engine does. `None` if it has none.
    ///
    /// # Cancel safety
    /// Dropping the future drops the handler's.
    pub(crate) async fn run(&self, context: TaskContext) -> Option<Result<(), HandlerError>> {
        let Registered { handler, .. } = self.handlers.get(context.key().class_method())?;
        let layers = self.layers_of(context.key(), &Layers::default());
        Some(context.in_trace(layers.run(handler, context.clone())).await)
    }

    /// Returns the middleware of this task, inside `outside`.
    pub(super) fn layers_of(&self, key: &TaskKey, outside: &Layers) -> Layers {
        self.middleware.of(key, outside)
    }

    /// Returns all handlers by `Class@method`, in no particular order.
    pub(super) fn all(&self) -> impl Iterator<Item = (&String, &Registered)> {
        self.handlers.iter()
    }

    /// True if there is a handler of this name.
    pub(super) fn has(&self, class_method: &str) -> bool {
        self.handlers.contains_key(class_method)
    }

    /// Returns the number of handlers.
    pub(super) fn len(&self) -> usize {
        self.handlers.len()
    }

    /// Returns `Class@method` of all handlers, in alphabetical order.
    pub(crate) fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.handlers.keys().map(String::as_str).collect();
        names.sort_unstable();
        names
    }
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}
