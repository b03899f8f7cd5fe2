use futures_util::FutureExt as _;

use super::*;
use crate::engine::queue::by_key::{ECHO_OF_KEY, ROUTED_AT_ONCE};
use crate::engine::queue::fair::{FRESH_MAX, SWEPT_MAX};
use crate::task::UnixMs;

fn signal(name: &str, source: Source) -> Signal {
    Signal {
        key: TaskKey::build("C", "m", [name]).unwrap(),
        source,
        arming: None,
    }
}

fn intake() -> SignalQueue {
    let clock = crate::clock::LedgerClock::starting_at(UnixMs(0));
    let share = Share::new(crate::fleet::MemberId(1), clock);
    let mut handlers = crate::HandlerRegistry::new();
    handlers.on("C", "m", |_, _: Vec<String>| async { Ok(()) });
    SignalQueue::new(
        Arc::new(Metrics::default()),
        Arc::new(share),
        Arc::new(Router::new(handlers, &crate::Config::default())),
        Arc::new(Semaphore::new(256)),
    )
}

fn waiting(intake: &SignalQueue) -> usize {
    let queues = intake.queues();
    queues.lines.waiting(SignalClass::Fresh) + queues.lines.waiting(SignalClass::Backlog)
}

fn take(intake: &SignalQueue, lane: SignalClass, limit: usize) -> Vec<Signal> {
    let taken = intake.take(lane, limit).into_iter();
    taken.map(|picked| picked.signal).collect()
}

#[test]
fn a_repeated_signal_comes_out_once() {
    let intake = intake();
    intake.raise(signal("a", Source::Event));
    intake.raise(signal("a", Source::Nudge));
    assert_eq!(
        take(&intake, SignalClass::Fresh, 10),
        [signal("a", Source::Event)]
    );
    assert_eq!(waiting(&intake), 0);
}

#[test]
fn a_signal_for_a_key_in_flight_comes_out_after_it_landed() {
    let intake = intake();
    intake.raise(signal("a", Source::Event));
    let taken = take(&intake, SignalClass::Fresh, 1);
    intake.raise(signal("a", Source::Nudge));
    assert_eq!(waiting(&intake), 0);
    intake.land(taken.iter().map(|signal| &signal.key));
    assert_eq!(
        take(&intake, SignalClass::Fresh, 1),
        [signal("a", Source::Nudge)]
    );
}

#[test]
fn a_row_is_known_while_its_task_waits_or_is_in_flight() {
    let intake = intake();
    let of = |row| Signal {
        arming: Some(Arming {
            row,
            due: UnixMs(10),
        }),
        ..signal("a", Source::Nudge)
    };
    intake.raise(of(7));
    assert!(intake.knows(7) && !intake.knows(8));
    let taken = take(&intake, SignalClass::Fresh, 1);
    assert!(intake.knows(7));
    intake.raise(of(8));
    assert!(intake.knows(7) && !intake.knows(8));
    // What was signalled meanwhile waits from now on.
    intake.land(taken.iter().map(|signal| &signal.key));
    assert!(!intake.knows(7) && intake.knows(8));
    let taken = take(&intake, SignalClass::Fresh, 1);
    intake.land(taken.iter().map(|signal| &signal.key));
    assert!(!intake.knows(8));
}

#[test]
fn a_signal_from_before_the_settlement_is_answered_by_it() {
    let intake = intake();
    intake.raise(signal("a", Source::Event));
    let taken = take(&intake, SignalClass::Fresh, 1);
    intake.raise(signal("a", Source::Nudge));
    intake.settling(taken.iter().map(|signal| &signal.key));
    intake.land(taken.iter().map(|signal| &signal.key));
    assert_eq!(waiting(&intake), 0);
}

#[tokio::test(start_paused = true)]
async fn echoes_of_a_settled_arming_are_dropped_and_a_new_arming_is_not() {
    let intake = intake();
    let settled = Arming {
        row: 1,
        due: UnixMs(10),
    };
    let of = |arming| Signal {
        arming: Some(arming),
        ..signal("a", Source::Nudge)
    };
    intake.raise(of(settled));
    let taken = take(&intake, SignalClass::Fresh, 1);
    intake.land_settled(taken.iter().map(|signal| (&signal.key, settled)));
    intake.raise(signal("a", Source::Event));
    intake.raise(of(settled));
    assert_eq!(waiting(&intake), 0);
    let newer = Arming {
        due: UnixMs(20),
        ..settled
    };
    intake.raise(of(newer));
    assert_eq!(take(&intake, SignalClass::Fresh, 1), [of(newer)]);
    intake.land(&[taken[0].key.clone()]);
    tokio::time::advance(ECHO_OF_KEY).await;
    intake.raise(signal("a", Source::Event));
    assert_eq!(waiting(&intake), 1);
}

#[tokio::test]
async fn the_sweep_waits_in_a_lane_of_its_own() {
    let intake = intake();
    for name in ["a", "b", "c"] {
        intake.raise(signal(name, Source::Sweep));
    }
    intake.raise(signal("d", Source::Direct));
    assert_eq!(
        (
            intake.ready(SignalClass::Fresh).await,
            intake.ready(SignalClass::Backlog).await
        ),
        (1, 3)
    );
    assert_eq!(
        take(&intake, SignalClass::Fresh, 9),
        [signal("d", Source::Direct)]
    );
    assert_eq!(take(&intake, SignalClass::Backlog, 2).len(), 2);
}

#[tokio::test]
async fn overflow_drops_and_a_sweep_is_asked_for_when_there_is_room() {
    for (source, lane, most) in [
        (Source::Sweep, SignalClass::Backlog, SWEPT_MAX),
        (Source::Event, SignalClass::Fresh, FRESH_MAX),
    ] {
        let intake = intake();
        for n in 0..=most {
            intake.raise(signal(&n.to_string(), source));
        }
        assert_eq!(waiting(&intake), most);
        let is_wanted = || intake.sweep_wanted().now_or_never().is_some();
        take(&intake, lane, most / 2);
        assert!(!is_wanted(), "a sweep would find no room");
        take(&intake, lane, 1);
        assert!(is_wanted());
    }
}

#[tokio::test]
async fn after_a_reload_signals_find_their_routes_few_at_a_time() {
    let count = 3 * ROUTED_AT_ONCE + 1;
    let intake = intake();
    for n in 0..count {
        intake.raise(signal(&n.to_string(), Source::Event));
    }
    intake.router.reload(&crate::Config::default());
    assert!(take(&intake, SignalClass::Fresh, 0).is_empty());
    assert_eq!(waiting(&intake), ROUTED_AT_ONCE);
    let mut taken = 0;
    while taken < count {
        intake.ready(SignalClass::Fresh).await;
        taken += take(&intake, SignalClass::Fresh, ROUTED_AT_ONCE).len();
    }
    assert_eq!((taken, waiting(&intake)), (count, 0));
    assert!(!intake.queues().has_unrouted());
}

#[tokio::test]
async fn a_redis_that_lost_its_data_is_the_strongest_cause_of_an_audit() {
    let intake = intake();
    intake.audit(Cause::RedisChanged);
    intake.audit(Cause::Sentinel);
    assert_eq!(intake.audit_wanted().await, Cause::RedisChanged);
    intake.audit(Cause::Sentinel);
    assert_eq!(intake.audit_wanted().await, Cause::Sentinel);
}
