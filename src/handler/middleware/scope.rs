//! Which tasks a middleware is for.

use std::future::Future;
use std::sync::Arc;

use regex::Regex;

use super::{Layer, Layers};
use crate::handler::{HandlerError, Middleware, TaskContext};
use crate::task::{Outcome, TaskKey};

/// Layers in the order in which they were registered, each with the tasks it is for.
#[derive(Clone, Default)]
pub(in crate::handler) struct ScopedMiddleware {
    layers: Vec<(Scope, Layer)>,
    /// Those for all tasks, as long as there are no others.
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
    /// Those of this task, inside of `outside`.
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

/// Some of the tasks, to register middleware and hooks around.
///
/// From [`HandlerRegistry::only`](crate::handler::HandlerRegistry::only) and [`matching`](crate::handler::HandlerRegistry::matching). The
/// order of registration counts over all tasks: what is registered first stands outermost.
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
        Self {
            scoped,
            scope: Scope::ClassMethod(key.as_str().to_owned()),
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

    /// Puts a middleware around these tasks, inside of those that are there.
    pub fn wrap(&mut self, middleware: impl Middleware) -> &mut Self {
        self.add(Layer::around(middleware))
    }

    /// Calls a hook before each run of these tasks. If it returns an error, the handler does not run, and the
    /// error is the outcome.
    pub fn before<F, R>(&mut self, hook: F) -> &mut Self
    where
        F: Fn(TaskContext) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), HandlerError>> + Send + 'static,
    {
        self.add(Layer::before(hook))
    }

    /// Calls a hook after each run of these tasks, with how it ended: panics, time-outs and lost leases included. It
    /// changes nothing about that, and must be quick: the run's slot waits for it.
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
