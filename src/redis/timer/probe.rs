//! End-to-end probes: proof that `expired` events arrive.
//!
//! A connection can be open and receive nothing: the notification flag was switched off, the address belongs to another
//! server, or a proxy drops messages. A probe writes a key, touches it when it expires, and waits for its event. Only a
//! *touched* key proves anything: a healthy Redis may delete an untouched one hours late.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::{Backlog, Keyspace, ProbeId, RedisError};

/// Time between two probes.
pub(super) const EVERY: Duration = Duration::from_secs(5);

/// Expiry of a probe's key.
const LIFE: Duration = Duration::from_secs(1);

/// Redis deletes a key one millisecond after its expiry at the earliest.
const AFTER_DUE: Duration = Duration::from_millis(1);

/// How long the event is awaited after each touch. The second touch follows soon, in case the first came a moment
/// early. The others cover a paused server, which expires nothing.
const PATIENCE: [Duration; 5] = [
    Duration::from_millis(2),
    Duration::from_secs(1),
    Duration::from_secs(1),
    Duration::from_secs(1),
    Duration::from_secs(1),
];

/// The result of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Proof {
    /// Its event arrived.
    Heard,
    /// Its event did not arrive.
    Silent,
}

/// Writes probes and waits for their events.
#[derive(Debug)]
pub(super) struct Probe {
    keyspace: Keyspace,
    /// The probe in flight; `None` once its event has arrived.
    awaited: watch::Sender<Option<ProbeId>>,
}

impl Probe {
    pub(super) fn new(keyspace: Keyspace) -> Self {
        let awaited = watch::Sender::new(None);
        Self { keyspace, awaited }
    }

    /// Notes a probe's event. Ignores probes of other daemons, which have other ids.
    pub(super) fn heard(&self, id: ProbeId) {
        self.awaited
            .send_if_modified(|awaited| awaited.take_if(|awaited| *awaited == id).is_some());
    }

    /// Sends one probe and waits for its event: about 5 s, and until the events published by then are handled.
    ///
    /// # Errors
    /// If Redis rejects the key or the touch. The probe then proves nothing.
    pub(super) async fn send(&self, backlog: &Backlog) -> Result<Proof, RedisError> {
        let id = self.await_one();
        let here = || self.keyspace.here(&self.keyspace.names().probe(id));
        let name = [here()?];
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
        let proof = self.arrival_behind(backlog).await;
        // The slot has moved, and the key with it: another master has published the event.
        if here()? != name[0] {
            return Err(RedisError::NoMaster(None));
        }
        Ok(proof)
    }

    /// Creates a probe and starts to wait for it.
    pub(super) fn await_one(&self) -> ProbeId {
        let id = ProbeId::random();
        self.awaited.send_replace(Some(id));
        id
    }

    /// Waits for the probe: one second, and until the events published by then are handled.
    pub(super) async fn arrival(&self, backlog: &Backlog) -> Proof {
        let mut awaited = self.awaited.subscribe();
        let arrived = awaited.wait_for(Option::is_none);
        if timeout(PATIENCE[1], arrived).await.is_ok() {
            return Proof::Heard;
        }
        self.arrival_behind(backlog).await
    }

    /// Waits until the events published so far are handled. A daemon that is behind with many events hears a probe late,
    /// and would lose those events with the connection.
    async fn arrival_behind(&self, backlog: &Backlog) -> Proof {
        backlog.caught_up().await;
        match *self.awaited.borrow() {
            None => Proof::Heard,
            Some(_) => Proof::Silent,
        }
    }
}
