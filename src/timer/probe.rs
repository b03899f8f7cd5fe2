//! Proof, end to end, that expired events arrive.
//!
//! A link can be alive and deaf: the flag was switched off, the address now belongs to another server,
//! something between swallows messages. So a key of our own is written, touched when it is due, and
//! its event must come back. Only a *touched* key proves anything: Redis may drop an untouched one hours
//! late and be in perfect health.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::redis::{Keyspace, ProbeId, RedisError};

/// How often.
pub(super) const EVERY: Duration = Duration::from_secs(5);

/// How long a probe lives.
const LIFE: Duration = Duration::from_secs(1);

/// A key can go one millisecond after it is due, not sooner.
const AFTER_DUE: Duration = Duration::from_millis(1);

/// How long its event is awaited after each touch. The second one follows at once, for a first that
/// came a moment early; the others because a paused server expires nothing.
const PATIENCE: [Duration; 5] = [
    Duration::from_millis(2),
    Duration::from_secs(1),
    Duration::from_secs(1),
    Duration::from_secs(1),
    Duration::from_secs(1),
];

/// What became of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Proof {
    /// Its event came back.
    Heard,
    /// It did not.
    Silent,
}

/// Writes probes and waits for them.
#[derive(Debug)]
pub(super) struct Probe {
    keyspace: Keyspace,
    /// The probe whose event is awaited; none once it has come.
    awaited: watch::Sender<Option<ProbeId>>,
}

impl Probe {
    pub(super) fn new(keyspace: Keyspace) -> Self {
        let awaited = watch::Sender::new(None);
        Self { keyspace, awaited }
    }

    /// An event named this probe. Those of other daemons are told apart by their number.
    pub(super) fn heard(&self, id: ProbeId) {
        self.awaited.send_if_modified(|awaited| {
            let is_ours = *awaited == Some(id);
            if is_ours {
                *awaited = None;
            }
            is_ours
        });
    }

    /// Sends one probe and waits for it, some 5 s at most.
    ///
    /// # Errors
    /// When Redis did not take the probe or the touch: nothing is proved then.
    pub(super) async fn send(&self) -> Result<Proof, RedisError> {
        let id = self.await_one();
        let name = [self.keyspace.names().probe(id)];
        let mut awaited = self.awaited.subscribe();
        let put = self.keyspace.put(&[(name[0].clone(), LIFE)]).await?;
        if let Some(refusal) = put.error {
            return Err(refusal);
        }
        sleep(LIFE + AFTER_DUE).await;
        for patience in PATIENCE {
            self.keyspace.touch(&name).await?;
            let arrived = awaited.wait_for(Option::is_none);
            if timeout(patience, arrived).await.is_ok() {
                return Ok(Proof::Heard);
            }
        }
        Ok(Proof::Silent)
    }

    /// A new probe, whose coming back is awaited from now on.
    pub(super) fn await_one(&self) -> ProbeId {
        let id = ProbeId::random();
        self.awaited.send_replace(Some(id));
        id
    }

    /// Waits for the probe to come back, a second at most.
    pub(super) async fn arrival(&self) -> Proof {
        let mut awaited = self.awaited.subscribe();
        let arrived = awaited.wait_for(Option::is_none);
        match timeout(PATIENCE[1], arrived).await {
            Ok(_) => Proof::Heard,
            Err(_) => Proof::Silent,
        }
    }
}
