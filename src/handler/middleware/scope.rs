//! Middleware by the tasks that it applies to.

use std::future::Future;
use std::sync::Arc;

use regex::Regex;

use super::{Layer, Layers};
use crate::handler::{HandlerError, Middleware, TaskContext};
use crate::task::{Outcome, TaskKey};

/// Layers in the order in which they were added, each with its scope.
#[derive(Clone, Default)]
pub(in crate::handler) struct ScopedMiddleware {
    layers: Vec<(Scope, Layer)>,
    /// All layers, if each is for all tasks; empty otherwise.
    for_all: Layers,
}

#[derive(Clone)]
enum Scope {
    All,
    ClassMethod(String),
    Matching(Regex),
}

impl Scope {
    fn holds(&self, key: &TaskKey) -> bool {
        match self {
            Self::All => true,
            Self::ClassMethod(name) => key.class_method() == name,
            Self::Matching(regex) => regex.is_match(key.as_str()),
        }
    }
}

impl ScopedMiddleware {
    /// Returns the layers of this task, inside `outside`.
    pub(in crate::handler) fn of(&self, key: &TaskKey, outside: &Layers) -> Layers {
        if self.layers.is_empty() {
            return outside.clone();
        }
        if outside.is_empty() && !self.for_all.is_empty() {
            return self.for_all.clone();
        }
        let mut layers = outside.clone();
        self.layers
            .iter()
            .filter(|(scope, _)| scope.holds(key))
            .for_each(|(_, layer)| layers.push(layer));
        layers
    }

    fn add(&mut self, scope: Scope, layer: Layer) {
        self.layers.push((scope, layer));
        self.for_all = Layers::default();
        if self
            .layers
            .iter()
            .all(|(scope, _)| matches!(scope, Scope::All))
        {
            self.layers
                .iter()
                .for_each(|(_, layer)| self.for_all.push(layer));
        }
    }
}

/// A selection of tasks, to add middleware and hooks for them: see [`Handlers::only`](crate::Handlers::only) and
/// [`Handlers::matching`](crate::Handlers::matching).
///
/// Middleware is nested in the order in which it was added, over all selections: the first one is outermost.
pub struct Selection<'a> {
    scoped: &'a mut ScopedMiddleware,
    scope: Scope,
}

impl<'a> Selection<'a> {
    pub(in crate::handler) fn all(scoped: &'a mut ScopedMiddleware) -> Self {
        Self {
            scoped,
            scope: Scope::All,
        }
    }

    pub(in crate::handler) fn only(
        scoped: &'a mut ScopedMiddleware,
        class: &str,
        method: &str,
    ) -> Self {
        let key = TaskKey::build(class, method, [""; 0])
            .unwrap_or_else(|error| panic!("register middleware: {error}"));
        Self::named(scoped, key.as_str())
    }

    pub(in crate::handler) fn named(scoped: &'a mut ScopedMiddleware, class_method: &str) -> Self {
        Self {
            scoped,
            scope: Scope::ClassMethod(class_method.to_owned()),
        }
    }

    pub(in crate::handler) fn matching(scoped: &'a mut ScopedMiddleware, pattern: &str) -> Self {
        let regex =
            Regex::new(pattern).unwrap_or_else(|error| panic!("register middleware: {error}"));
        Self {
            scoped,
            scope: Scope::Matching(regex),
        }
    }

    /// Adds a middleware for these tasks, inside the ones added before.
    pub fn wrap(&mut self, middleware: impl Middleware) -> &mut Self {
        self.add(Layer::around(middleware))
    }

    /// Adds a hook that is called before each run of these tasks. If it returns an error, the handler is not called, and
    /// the error is the result of the run.
    pub fn before<F, R>(&mut self, hook: F) -> &mut Self
    where
        F: Fn(TaskContext) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), HandlerError>> + Send + 'static,
    {
        self.add(Layer::before(hook))
    }

    /// Adds a hook that is called after each run of these tasks with its outcome, also after a panic, a timeout and a lost
    /// lease. It cannot change the outcome. It must be quick, since the run keeps its slot until the hook returns.
    pub fn after<F>(&mut self, hook: F) -> &mut Self
    where
        F: Fn(&TaskContext, &Outcome) + Send + Sync + 'static,
    {
        self.add(Layer::After(Arc::new(hook)))
    }

    fn add(&mut self, layer: Layer) -> &mut Self {
        self.scoped.add(self.scope.clone(), layer);
        self
    }
}
