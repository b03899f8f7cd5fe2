//! Task types: class, method and argument types that producers and handlers share.

use std::fmt;
use std::marker::PhantomData;

use super::KEY_BYTES_MAX;

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

/// True if the text is a name, as in [`TaskKey`](super::TaskKey).
const fn is_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    if bytes.is_empty() || !(bytes[0].is_ascii_alphabetic() || bytes[0] == b'_') {
        return false;
    }
    let mut index = 1;
    while index < bytes.len() {
        let fits = bytes[index].is_ascii_alphanumeric()
            || matches!(bytes[index], b'_' | b'.' | b':' | b'\\' | b'-');
        if !fits {
            return false;
        }
        index += 1;
    }
    true
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

/// A name of a task type: a [`TaskType`], or class and method as text.
pub trait TaskName {
    /// Returns class and method.
    fn class_and_method(&self) -> (&str, &str);
}

impl<A> TaskName for TaskType<A> {
    fn class_and_method(&self) -> (&str, &str) {
        (self.class, self.method)
    }
}

impl TaskName for (&str, &str) {
    fn class_and_method(&self) -> (&str, &str) {
        *self
    }
}

/// A name of a task type with arguments `A`. Text matches any.
pub trait Takes<A>: TaskName {}

impl<A> Takes<A> for TaskType<A> {}

impl<A> Takes<A> for (&str, &str) {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::TaskKey;

    #[test]
    fn a_name_is_valid_for_a_task_type_if_it_is_for_a_key() {
        for name in [
            "Order",
            "_x",
            "a.b:c\\d-e",
            "",
            "1a",
            "a@b",
            "a b",
            "-a",
            "\u{e9}",
        ] {
            let fits_key = TaskKey::build(name, "m", [""; 0]).is_ok();
            assert_eq!(is_name(name), fits_key, "{name:?}");
        }
    }
}
