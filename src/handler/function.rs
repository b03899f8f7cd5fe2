//! Async functions as handlers: parameters that are [read from the run](FromTask) first, the arguments last.

use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;

use super::{FromArg, FromArgs, FromTask, Handler, HandlerError, TaskContext};

/// An async function that runs tasks with the arguments `A`.
///
/// It takes up to six parameters that are [read from the run](FromTask), such as
/// [`TaskContext`] and [`State`](super::State), and then the arguments: as the tuple or `Vec` that `A` is, a single one
/// also by itself, none not at all.
///
/// `M` tells these forms apart; it is always inferred.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no handler of tasks with the arguments `{A}`",
    note = "expected an async function of extractors (`TaskContext`, `State<_>`, `Payload<_>`) and then `{A}`, which returns `Result<(), HandlerError>`"
)]
pub trait IntoHandler<A, M, S> {
    /// The handler, which has the state.
    fn into_handler(self, state: S) -> Arc<dyn Handler>;
}

/// A function that begins a run, or says why it cannot.
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

/// The last parameter is all arguments.
pub struct AllArguments;

/// The last parameter is the only argument.
pub struct OneArgument;

/// There is no argument.
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
                let _ = &state; // there may be no parameter that wants it
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
                let _ = &state; // there may be no parameter that wants it
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
                let _ = &state; // there may be no parameter that wants it
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
