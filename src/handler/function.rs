//! Async functions as handlers.

use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;

use super::{FromArg, FromArgs, FromTask, Handler, HandlerError, TaskContext};

/// An async function that can handle tasks with the arguments `A`.
///
/// Its first parameters, up to six, are [extractors](FromTask), such as [`TaskContext`] and [`State`](super::State). Its
/// last parameter is the arguments, as the tuple or `Vec` that `A` is. A single argument can also be taken without the
/// tuple, and a function without arguments has no last parameter.
///
/// `M` distinguishes these forms. It is always inferred.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no handler of tasks with the arguments `{A}`",
    note = "expected an async function of extractors (`TaskContext`, `State<_>`, `Payload<_>`) and then `{A}`, which returns `Result<(), HandlerError>`"
)]
pub trait IntoHandler<A, M, S> {
    /// Returns the handler.
    fn into_handler(self, state: S) -> Arc<dyn Handler>;
}

/// A function that starts a run.
struct Function<F>(F);

#[async_trait]
impl<F, R> Handler for Function<F>
where
    F: Fn(TaskContext) -> Result<R, HandlerError> + Send + Sync + 'static,
    R: Future<Output = Result<(), HandlerError>> + Send + 'static,
{
    async fn run(&self, context: TaskContext) -> Result<(), HandlerError> {
        let run = (self.0)(context)?;
        run.await
    }
}

/// Marker: the last parameter is all arguments.
pub struct AllArguments;

/// Marker: the last parameter is the only argument.
pub struct OneArgument;

/// Marker: there are no arguments.
pub struct NoArguments;

macro_rules! functions {
    ($(($($name:ident),*))*) => {$(
        impl<F, R, S, A, $($name),*> IntoHandler<A, (AllArguments, $($name,)*), S> for F
        where
            F: Fn($($name,)* A) -> R + Send + Sync + 'static,
            R: Future<Output = Result<(), HandlerError>> + Send + 'static,
            S: Send + Sync + 'static,
            A: FromArgs,
            $($name: FromTask<S>,)*
        {
            fn into_handler(self, state: S) -> Arc<dyn Handler> {
                let _ = &state; // unused without extractors
                Arc::new(Function(move |context: TaskContext| {
                    let args: Vec<&str> = context.key().args().collect();
                    let args = A::from_args(&args)?;
                    Ok(self($($name::from_task(&context, &state)?,)* args))
                }))
            }
        }

        impl<F, R, S, T, $($name),*> IntoHandler<(T,), (OneArgument, $($name,)*), S> for F
        where
            F: Fn($($name,)* T) -> R + Send + Sync + 'static,
            R: Future<Output = Result<(), HandlerError>> + Send + 'static,
            S: Send + Sync + 'static,
            T: FromArg + Send + 'static,
            $($name: FromTask<S>,)*
        {
            fn into_handler(self, state: S) -> Arc<dyn Handler> {
                let _ = &state; // unused without extractors
                Arc::new(Function(move |context: TaskContext| {
                    let args: Vec<&str> = context.key().args().collect();
                    let (arg,) = <(T,)>::from_args(&args)?;
                    Ok(self($($name::from_task(&context, &state)?,)* arg))
                }))
            }
        }

        impl<F, R, S, $($name),*> IntoHandler<(), (NoArguments, $($name,)*), S> for F
        where
            F: Fn($($name),*) -> R + Send + Sync + 'static,
            R: Future<Output = Result<(), HandlerError>> + Send + 'static,
            S: Send + Sync + 'static,
            $($name: FromTask<S>,)*
        {
            fn into_handler(self, state: S) -> Arc<dyn Handler> {
                let _ = &state; // unused without extractors
                Arc::new(Function(move |context: TaskContext| {
                    let args: Vec<&str> = context.key().args().collect();
                    <()>::from_args(&args)?;
                    Ok(self($($name::from_task(&context, &state)?),*))
                }))
            }
        }
    )*};
}

functions! {
    ()
    (T1)
    (T1, T2)
    (T1, T2, T3)
    (T1, T2, T3, T4)
    (T1, T2, T3, T4, T5)
    (T1, T2, T3, T4, T5, T6)
}
