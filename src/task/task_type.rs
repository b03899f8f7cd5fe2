//! What producers and handlers of one kind of task share: class, method, and the types of the arguments.

use std::fmt;
use std::marker::PhantomData;

use super::KEY_BYTES_MAX;

/// A class, a method, and the types of the arguments, as a tuple or a `Vec`.
///
/// Producers create tasks by it, handlers are registered by it, so neither can mistake the name or the arguments of the
/// other:
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
/// Nor does a name that is none:
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
    /// The tasks `class@method`.
    ///
    /// # Panics
    /// If class or method does not match `[A-Za-z_][A-Za-z0-9_.:\\-]*`. In a `const`, that is an error of compilation.
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

    /// The part before the first `@`.
    pub const fn class(&self) -> &'static str {
        self.class
    }

    /// The part behind it.
    pub const fn method(&self) -> &'static str {
        self.method
    }
}

/// The first character of a name, and the others, as in [`TaskKey`](super::TaskKey).
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

/// Names a kind of task: a [`TaskType`], or class and method as texts.
pub trait TaskName {
    /// Class and method.
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

/// Names a kind of task whose arguments are `A`. Texts fit any.
pub trait Takes<A>: TaskName {}

impl<A> Takes<A> for TaskType<A> {}

impl<A> Takes<A> for (&str, &str) {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::TaskKey;

    #[test]
    fn a_name_fits_a_task_type_if_it_fits_a_key() {
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
