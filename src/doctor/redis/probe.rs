//! Event check by experiment, where the server does not show its flags: a key expires, and its events must arrive.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::notifications::persist;
use lapsed::diagnosis::Finding;
use lapsed_redis::{
    Commands, Connected, EventKind, Events, Heard, Keyspace, NotifyFlags, ProbeId, RedisError,
};

pub(super) const EVENTS: &str = "redis.events";

/// Expiry of the key.
const LIFE: Duration = Duration::from_millis(50);

/// Time between two touches of the key. Redis publishes the event when it deletes the key, which a touch makes it do.
const TOUCH_EVERY: Duration = Duration::from_millis(100);

/// How long the events are awaited.
const PATIENCE: Duration = Duration::from_secs(2);

/// Which events of the key arrived.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Arrived {
    expired: bool,
    armed: bool,
}

/// Writes a key that expires at once, and waits for its events: 2 s at most.
pub(super) async fn probe(
    commands: &Commands,
    key_prefix: &str,
    wanted: Events,
) -> Result<Arrived, RedisError> {
    let keyspace = Keyspace::new(commands.clone(), key_prefix);
    let mut connected = Connected::open(commands.endpoint()).await?;
    connected.subscribe(EventKind::Expired).await?;
    if wanted == Events::ExpiredAndArmings {
        connected.subscribe(EventKind::Expire).await?;
    }
    let (subscription, _backlog) = connected.subscription();
    let id = ProbeId::random();
    let (heard, mut events) = mpsc::unbounded_channel();
    let listening = subscription.listen(
        keyspace.names(),
        |kind, name| {
            if name == Heard::Probe(id) {
                // The receiver lives as long as this future.
                let _: Result<(), _> = heard.send(kind);
            }
        },
        |_| {},
    );
    let trying = async {
        let name = [keyspace.here(&keyspace.names().probe(id))?];
        let put = keyspace.put(&[(name[0].clone(), LIFE)]).await?;
        if let Some(refusal) = put.error {
            return Err(refusal);
        }
        let until = Instant::now() + PATIENCE;
        let mut arrived = Arrived::default();
        loop {
            sleep(TOUCH_EVERY).await;
            keyspace.touch(&name).await?;
            while let Ok(kind) = events.try_recv() {
                match kind {
                    EventKind::Expired => arrived.expired = true,
                    _ => arrived.armed = true,
                }
            }
            if arrived.expired || Instant::now() >= until {
                return Ok(arrived);
            }
        }
    };
    tokio::select! {
        tried = trying => tried,
        _ = listening => Err(RedisError::silence()),
    }
}

pub(super) fn judge(arrived: Arrived, wanted: Events) -> Finding {
    let remedy = || persist(&NotifyFlags::parse(wanted.flags()));
    if !arrived.expired {
        return Finding::error(
            EVENTS,
            "the `expired` event of a probe key did not arrive within 2 s: events are switched off, or a proxy drops them",
        )
        .remedy(remedy());
    }
    if wanted == Events::ExpiredAndArmings && !arrived.armed {
        return Finding::warning(
            EVENTS,
            "of a probe key, the `expired` event arrived, but not that of the new key: a bare `SETEX` is adopted late, and delays below a second may start late",
        )
        .remedy(remedy());
    }
    Finding::ok(EVENTS, "the events of a probe key arrive")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assertions::assert_is;
    use lapsed::diagnosis::Severity;

    #[test]
    fn an_event_is_missed_only_if_it_is_wanted() {
        let told = [
            (false, false, Events::Expired, Severity::Error),
            (false, true, Events::ExpiredAndArmings, Severity::Error),
            (true, false, Events::ExpiredAndArmings, Severity::Warning),
            (true, false, Events::Expired, Severity::Ok),
            (true, true, Events::ExpiredAndArmings, Severity::Ok),
        ];
        for (expired, armed, wanted, severity) in told {
            assert_is(
                &judge(Arrived { expired, armed }, wanted),
                severity,
                "probe key",
            );
        }
        let remedy = judge(Arrived::default(), Events::ExpiredAndArmings).remedy;
        assert!(remedy.unwrap().contains("notify-keyspace-events Exg"));
    }
}
