//! Extractors: parameters of a handler that are read from the run, by their type.

use std::sync::Arc;

use serde::de::DeserializeOwned;

use super::{HandlerError, TaskContext};

/// An extractor: a parameter of a handler that is read from the run and the state of [`Handlers`](super::Handlers).
pub trait FromTask<S>: Sized {
    /// Reads the value.
    ///
    /// # Errors
    /// The result of the run. The handler is not called.
    fn from_task(context: &TaskContext, state: &S) -> Result<Self, HandlerError>;
}

/// A part of the state `S`, for [`State`]. The whole state is a part, too.
pub trait FromRef<S> {
    /// Returns a copy of the part.
    fn from_ref(state: &S) -> Self;
}

impl<S: Clone> FromRef<S> for S {
    fn from_ref(state: &S) -> Self {
        state.clone()
    }
}

/// The state of the [`Handlers`](super::Handlers), or a part of it ([`FromRef`]).
#[derive(Debug, Clone, Copy)]
pub struct State<T>(pub T);

/// The payload, deserialized from JSON. A task without a payload, or whose payload is not a `T`, fails permanently.
#[derive(Debug, Clone, Copy)]
pub struct Payload<T>(pub T);

/// A value that middleware has stored in the [`Extensions`](super::Extensions) of the run. Without it the run fails.
#[derive(Debug)]
pub struct Extension<T>(pub Arc<T>);

impl<S> FromTask<S> for TaskContext {
    fn from_task(context: &TaskContext, _: &S) -> Result<Self, HandlerError> {
        Ok(context.clone())
    }
}

impl<S, T: FromRef<S>> FromTask<S> for State<T> {
    fn from_task(_: &TaskContext, state: &S) -> Result<Self, HandlerError> {
        Ok(Self(T::from_ref(state)))
    }
}

impl<S, T: DeserializeOwned> FromTask<S> for Payload<T> {
    fn from_task(context: &TaskContext, _: &S) -> Result<Self, HandlerError> {
        context.payload().map(Self)
    }
}

impl<S, T: DeserializeOwned> FromTask<S> for Option<Payload<T>> {
    fn from_task(context: &TaskContext, _: &S) -> Result<Self, HandlerError> {
        let payload = context.payload_json().map(|_| context.payload());
        Ok(payload.transpose()?.map(Payload))
    }
}

impl<S, T: Send + Sync + 'static> FromTask<S> for Extension<T> {
    fn from_task(context: &TaskContext, _: &S) -> Result<Self, HandlerError> {
        let value = context.extensions().get();
        value.map(Self).ok_or_else(|| {
            let name = std::any::type_name::<T>();
            HandlerError::new(format!(
                "no middleware has put a `{name}` into the extensions"
            ))
        })
    }
}
