//! Activation: requests that a background task run now.

use std::sync::{Mutex, MutexGuard};

use tokio::sync::Notify;

use crate::timer::Cause;

/// Activations of the background tasks.
#[derive(Debug, Default)]
pub struct Activations {
    /// The sweep.
    pub sweep: SweepActivation,
    /// The audit.
    pub audit: AuditActivation,
    /// The look-ahead, when task ownership has changed.
    pub look_ahead: Notify,
    /// The scan for leases of dead daemons. It stays requested until a scan succeeds.
    pub lease_scan: Notify,
}

/// Requests for a sweep.
#[derive(Debug, Default)]
pub struct SweepActivation(Notify);

impl SweepActivation {
    /// Requests a sweep.
    pub fn activate(&self, cause: Cause) {
        tracing::trace!(cause = cause.as_str(), "sweep activated");
        self.0.notify_one();
    }

    /// Waits for a request.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn activated(&self) {
        self.0.notified().await;
    }
}

/// Requests for an audit: keeps the most urgent cause since the last request was taken.
#[derive(Debug, Default)]
pub struct AuditActivation {
    cause: Mutex<Option<Cause>>,
    changed: Notify,
}

impl AuditActivation {
    /// Requests an audit.
    pub fn activate(&self, cause: Cause) {
        let mut requested = self.cause();
        *requested = Some(requested.map_or(cause, |requested| requested.or_more_urgent(cause)));
        drop(requested);
        self.changed.notify_one();
    }

    /// Waits for a request, and takes it.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn activated(&self) -> Cause {
        loop {
            let changed = self.changed.notified();
            if let Some(cause) = self.cause().take() {
                return cause;
            }
            changed.await;
        }
    }

    /// Withdraws the request if this is its cause.
    pub fn withdraw(&self, cause: Cause) {
        let mut requested = self.cause();
        *requested = requested.filter(|requested| *requested != cause);
    }

    /// True if an audit is requested that does not wait for its turn.
    pub fn is_urgent(&self) -> bool {
        *self.cause() == Some(Cause::RedisChanged)
    }

    fn cause(&self) -> MutexGuard<'_, Option<Cause>> {
        self.cause.lock().expect("nothing panics while holding it")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_changed_redis_is_the_most_urgent_cause_of_an_audit() {
        let audit = AuditActivation::default();
        audit.activate(Cause::RedisChanged);
        audit.activate(Cause::Sentinel);
        assert_eq!(audit.activated().await, Cause::RedisChanged);
        audit.activate(Cause::Sentinel);
        assert_eq!(audit.activated().await, Cause::Sentinel);
    }
}
