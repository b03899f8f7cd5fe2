//! Values that middleware passes to the handler.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// Values of one run, at most one of each type.
///
/// ```
/// use lapsed::handler::Extensions;
///
/// struct Tenant(u64);
///
/// let extensions = Extensions::default();
/// extensions.insert(Tenant(7));
/// assert_eq!(extensions.get::<Tenant>().map(|tenant| tenant.0), Some(7));
/// assert!(extensions.get::<String>().is_none());
/// ```
#[derive(Default)]
pub struct Extensions(Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>);

impl Extensions {
    /// Stores a value for the rest of the run. Returns the previous value of this type.
    pub fn insert<T: Send + Sync + 'static>(&self, value: T) -> Option<Arc<T>> {
        let before = self.values().insert(TypeId::of::<T>(), Arc::new(value))?;
        before.downcast().ok()
    }

    /// Returns the value of this type.
    pub fn get<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        let value = self.values().get(&TypeId::of::<T>()).cloned()?;
        value.downcast().ok()
    }

    fn values(&self) -> MutexGuard<'_, HashMap<TypeId, Arc<dyn Any + Send + Sync>>> {
        self.0.lock().expect("nothing panics while holding them")
    }
}

impl std::fmt::Debug for Extensions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Extensions({})", self.values().len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_takes_the_place_of_one_of_its_type() {
        let extensions = Extensions::default();
        assert_eq!(extensions.insert(1u8), None);
        assert_eq!(extensions.insert("text"), None);
        assert_eq!(extensions.insert(2u8).as_deref(), Some(&1));
        assert_eq!(extensions.get::<u8>().as_deref(), Some(&2));
    }
}
