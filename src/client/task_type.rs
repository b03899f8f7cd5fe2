//! Task types, which producers and handlers share; and tasks and keys from these and from texts.

use std::fmt;
use std::marker::PhantomData;

use super::Task;
use crate::task::{KEY_BYTES_MAX, KeyError, Takes, TaskKey, TaskName, is_name};

/// A class, a method, and the types of the arguments, as a tuple or a `Vec`.
///
/// Producers create tasks with it, and handlers are registered with it, so names and arguments on both sides agree:
///
/// ```
/// use lapsed::TaskType;
///
/// const CLOSE: TaskType<(u64, String)> = TaskType::new("Order", "close");
/// assert_eq!(CLOSE.args(42, "unpaid")?.key().as_str(), "Order@close@42@unpaid");
/// # Ok::<(), lapsed::task::KeyError>(())
/// ```
///
/// An argument of another type does not compile:
///
/// ```compile_fail,E0277
/// use lapsed::TaskType;
///
/// const CLOSE: TaskType<(u64,)> = TaskType::new("Order", "close");
/// let task = CLOSE.args("forty-two");
/// ```
///
/// Nor does an invalid name:
///
/// ```compile_fail,E0080
/// use lapsed::TaskType;
///
/// const CLOSE: TaskType<(u64,)> = TaskType::new("Order@", "close");
/// println!("{CLOSE:?}");
/// ```
pub struct TaskType<A = ()> {
    class: &'static str,
    method: &'static str,
    args: PhantomData<fn() -> A>,
}

impl<A> TaskType<A> {
    /// Creates the type of tasks `class@method`.
    ///
    /// # Panics
    /// If class or method does not match `[A-Za-z_][A-Za-z0-9_.:\\-]*`. In a `const`, this is a compile error.
    pub const fn new(class: &'static str, method: &'static str) -> Self {
        assert!(
            is_name(class),
            "expected a class: a letter or `_`, then letters, digits or `_.:\\-`"
        );
        assert!(
            is_name(method),
            "expected a method: a letter or `_`, then letters, digits or `_.:\\-`"
        );
        assert!(
            class.len() + method.len() < KEY_BYTES_MAX,
            "class and method are too long for a key"
        );
        Self {
            class,
            method,
            args: PhantomData,
        }
    }

    /// Returns the part before the first `@`.
    pub const fn class(&self) -> &'static str {
        self.class
    }

    /// Returns the part after it.
    pub const fn method(&self) -> &'static str {
        self.method
    }
}

impl<A> Clone for TaskType<A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A> Copy for TaskType<A> {}

impl<A> fmt::Debug for TaskType<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TaskType({}@{})", self.class, self.method)
    }
}

impl<A> TaskName for TaskType<A> {
    fn class_and_method(&self) -> (&str, &str) {
        (self.class, self.method)
    }
}

impl<A> Takes<A> for TaskType<A> {}

/// A value for an argument of type `T`: a `T`, or a `&str` for a `String`.
pub trait IntoArg<T> {
    /// The argument.
    fn into_arg(self) -> T;
}

impl<T> IntoArg<T> for T {
    fn into_arg(self) -> T {
        self
    }
}

impl IntoArg<String> for &str {
    fn into_arg(self) -> String {
        self.to_owned()
    }
}

impl TaskType<()> {
    /// The task without arguments.
    ///
    /// # Errors
    /// None. The `Result` can be passed on as it is.
    pub fn args(self) -> Result<Task, KeyError> {
        Task::new(self.class(), self.method(), [""; 0])
    }
}

impl<T: ToString> TaskType<Vec<T>> {
    /// The task with any number of arguments of one type.
    ///
    /// # Errors
    /// [`KeyError`] names the argument that does not fit the grammar.
    pub fn args(self, args: impl IntoIterator<Item = T>) -> Result<Task, KeyError> {
        Task::new(self.class(), self.method(), args)
    }
}

macro_rules! tuples {
    ($($($type:ident $name:ident),+;)+) => {$(
        impl<$($type: ToString),+> TaskType<($($type,)+)> {
            /// The task with these arguments. The `Result` can be passed on as it is: it is an [`IntoTask`] and an [`IntoKey`].
            ///
            /// # Errors
            /// [`KeyError`] names the argument that does not fit the grammar.
            #[allow(clippy::too_many_arguments)] // as many as the task has
            pub fn args(self, $($name: impl IntoArg<$type>),+) -> Result<Task, KeyError> {
                let args = [$(<_ as IntoArg<$type>>::into_arg($name).to_string()),+];
                Task::new(self.class(), self.method(), args)
            }
        }
    )+};
}

tuples! {
    A a;
    A a, B b;
    A a, B b, C c;
    A a, B b, C c, D d;
    A a, B b, C c, D d, E e;
    A a, B b, C c, D d, E e, F f;
    A a, B b, C c, D d, E e, F f, G g;
    A a, B b, C c, D d, E e, F f, G g, H h;
}

/// A task to create: a [`Task`], a result of [`TaskType::args`] or [`Task::new`], a key, or class, method and arguments.
pub trait IntoTask {
    /// The task.
    ///
    /// # Errors
    /// [`KeyError`] names the part that does not fit the grammar.
    fn into_task(self) -> Result<Task, KeyError>;
}

impl IntoTask for Task {
    fn into_task(self) -> Result<Task, KeyError> {
        Ok(self)
    }
}

impl IntoTask for Result<Task, KeyError> {
    fn into_task(self) -> Result<Task, KeyError> {
        self
    }
}

impl IntoTask for TaskKey {
    fn into_task(self) -> Result<Task, KeyError> {
        Ok(Task::from(self))
    }
}

impl<A> IntoTask for (&str, &str, A)
where
    A: IntoIterator,
    A::Item: ToString,
{
    fn into_task(self) -> Result<Task, KeyError> {
        let (class, method, args) = self;
        Task::new(class, method, args)
    }
}

/// The key of a task: a [`TaskKey`], its text, a [`Task`], a result of [`TaskType::args`], or class, method and arguments.
pub trait IntoKey {
    /// The key.
    ///
    /// # Errors
    /// [`KeyError`] names the part that does not fit the grammar.
    fn into_key(self) -> Result<TaskKey, KeyError>;
}

impl IntoKey for TaskKey {
    fn into_key(self) -> Result<TaskKey, KeyError> {
        Ok(self)
    }
}

impl IntoKey for &TaskKey {
    fn into_key(self) -> Result<TaskKey, KeyError> {
        Ok(self.clone())
    }
}

impl IntoKey for &str {
    fn into_key(self) -> Result<TaskKey, KeyError> {
        TaskKey::parse(self)
    }
}

impl IntoKey for &Task {
    fn into_key(self) -> Result<TaskKey, KeyError> {
        Ok(self.key().clone())
    }
}

impl IntoKey for Task {
    fn into_key(self) -> Result<TaskKey, KeyError> {
        Ok(self.key)
    }
}

impl IntoKey for Result<Task, KeyError> {
    fn into_key(self) -> Result<TaskKey, KeyError> {
        self.map(|task| task.key)
    }
}

impl<A> IntoKey for (&str, &str, A)
where
    A: IntoIterator,
    A::Item: ToString,
{
    fn into_key(self) -> Result<TaskKey, KeyError> {
        self.into_task().map(|task| task.key)
    }
}
