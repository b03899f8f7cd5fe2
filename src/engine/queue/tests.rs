mod limits;

use futures_util::FutureExt as _;

use super::by_key::{ECHO_OF_KEY, ROUTED_AT_ONCE};
use super::fair::{BACKLOG_MAX, FRESH_MAX};
use super::*;
use crate::task::UnixMs;

fn signal(name: &str, source: Source) -> Signal {
    Signal::new(TaskKey::build("C", "m", [name]).unwrap(), source, None)
}

fn armed(name: &str, source: Source) -> Signal {
    let (row, due) = (1, UnixMs(10));
    Signal {
        arming: Some(Arming { row, due }),
        ..signal(name, source)
    }
}

fn queue() -> SignalQueue {
    let mut handlers = crate::Handlers::new();
    handlers.on(("C", "m"), |_: Vec<String>| async { Ok(()) });
    queue_of(Router::new(handlers, &crate::Config::default()))
}

fn queue_with(routes: &str) -> SignalQueue {
    let config = crate::Config::from_toml(routes).unwrap();
    queue_of(Router::new(crate::Handlers::new(), &config))
}

fn queue_of(router: Router) -> SignalQueue {
    let clock = crate::clock::LedgerClock::starting_at(UnixMs(0));
    let share = Ownership::new(crate::membership::MemberId(1), clock);
    SignalQueue::new(
        Arc::new(Metrics::default()),
        Arc::new(share),
        Arc::new(router),
        256,
    )
}

fn waiting(queue: &SignalQueue) -> usize {
    let queues = queue.queues();
    queues.route_queues.waiting(SignalClass::Fresh)
        + queues.route_queues.waiting(SignalClass::Backlog)
}

fn take(queue: &SignalQueue, class: SignalClass, limit: usize) -> Vec<Signal> {
    let taken = queue.take(class, limit).into_iter();
    taken.map(|taken| taken.signal).collect()
}

#[test]
fn a_repeated_signal_is_taken_once() {
    let queue = queue();
    queue.push(signal("a", Source::Event));
    queue.push(signal("a", Source::Nudge));
    assert_eq!(
        take(&queue, SignalClass::Fresh, 10),
        [signal("a", Source::Event)]
    );
    assert_eq!(waiting(&queue), 0);
}

#[test]
fn a_signal_for_a_key_in_flight_is_taken_after_the_key_is_finished() {
    let queue = queue();
    queue.push(signal("a", Source::Event));
    let taken = take(&queue, SignalClass::Fresh, 1);
    queue.push(signal("a", Source::Nudge));
    assert_eq!(waiting(&queue), 0);
    queue.finish(taken.iter().map(|signal| &signal.key));
    assert_eq!(
        take(&queue, SignalClass::Fresh, 1),
        [signal("a", Source::Nudge)]
    );
}

#[test]
fn a_signal_carries_the_event_that_arrived_while_it_waited_or_ran() {
    let queue = queue();
    let event = |at| Signal {
        published: Some(UnixMs(at)..=UnixMs(at + 1)),
        ..signal("a", Source::Event)
    };
    queue.push(armed("a", Source::Nudge));
    queue.push(event(20));
    queue.push(armed("a", Source::Sweep));
    let taken = take(&queue, SignalClass::Fresh, 1);
    let nudge = Signal {
        published: event(20).published,
        ..armed("a", Source::Nudge)
    };
    assert_eq!(taken, std::slice::from_ref(&nudge));
    queue.push(event(30));
    queue.push(armed("a", Source::Nudge));
    queue.finish(taken.iter().map(|signal| &signal.key));
    let nudge = Signal {
        published: event(30).published,
        ..nudge
    };
    assert_eq!(take(&queue, SignalClass::Fresh, 1), [nudge]);
}

#[test]
fn a_waiting_event_takes_the_arming_that_a_later_signal_names() {
    let queue = queue();
    queue.push(signal("a", Source::Event));
    assert!(!queue.contains_row(1));
    queue.push(armed("a", Source::Nudge));
    assert!(queue.contains_row(1));
    let (row, due) = (2, UnixMs(20));
    queue.push(Signal {
        arming: Some(Arming { row, due }),
        ..signal("a", Source::Sweep)
    });
    assert!(!queue.contains_row(2));
    let taken = take(&queue, SignalClass::Fresh, 1);
    let event = Signal {
        source: Source::Event,
        ..armed("a", Source::Nudge)
    };
    assert_eq!(taken, [event]);
    assert!(queue.contains_row(1));
    queue.finish(taken.iter().map(|signal| &signal.key));
    assert!(!queue.contains_row(1));
}

#[test]
fn a_row_is_known_while_its_task_waits_or_is_in_flight() {
    let queue = queue();
    let of = |row| Signal {
        arming: Some(Arming {
            row,
            due: UnixMs(10),
        }),
        ..signal("a", Source::Nudge)
    };
    queue.push(of(7));
    assert!(queue.contains_row(7) && !queue.contains_row(8));
    let taken = take(&queue, SignalClass::Fresh, 1);
    assert!(queue.contains_row(7));
    queue.push(of(8));
    assert!(queue.contains_row(7) && !queue.contains_row(8));
    // The signal that arrived meanwhile waits from now on.
    queue.finish(taken.iter().map(|signal| &signal.key));
    assert!(!queue.contains_row(7) && queue.contains_row(8));
    let taken = take(&queue, SignalClass::Fresh, 1);
    queue.finish(taken.iter().map(|signal| &signal.key));
    assert!(!queue.contains_row(8));
}

#[test]
fn a_signal_that_arrives_before_the_settlement_is_dropped() {
    let queue = queue();
    queue.push(signal("a", Source::Event));
    let taken = take(&queue, SignalClass::Fresh, 1);
    queue.push(signal("a", Source::Nudge));
    queue.settling(taken.iter().map(|signal| &signal.key));
    queue.finish(taken.iter().map(|signal| &signal.key));
    assert_eq!(waiting(&queue), 0);
}

#[test]
fn a_signal_that_arrives_after_the_settlement_says_when_an_event_came_before_it() {
    let queue = queue();
    queue.push(armed("a", Source::Nudge));
    let taken = take(&queue, SignalClass::Fresh, 1);
    let heard = Some(UnixMs(20)..=UnixMs(30));
    queue.push(Signal {
        published: heard.clone(),
        ..signal("a", Source::Event)
    });
    queue.settling(taken.iter().map(|signal| &signal.key));
    queue.push(signal("a", Source::Direct));
    queue.finish(taken.iter().map(|signal| &signal.key));
    let again = take(&queue, SignalClass::Fresh, 1);
    assert_eq!(
        (again[0].source, &again[0].published),
        (Source::Direct, &heard)
    );
}

#[tokio::test(start_paused = true)]
async fn echoes_of_a_settled_arming_are_dropped_and_a_new_arming_is_not() {
    let queue = queue();
    let settled = Arming {
        row: 1,
        due: UnixMs(10),
    };
    let of = |arming| Signal {
        arming: Some(arming),
        ..signal("a", Source::Nudge)
    };
    queue.push(of(settled));
    let taken = take(&queue, SignalClass::Fresh, 1);
    queue.finish_settled(taken.iter().map(|signal| (&signal.key, settled)));
    queue.push(signal("a", Source::Event));
    queue.push(of(settled));
    assert_eq!(waiting(&queue), 0);
    let newer = Arming {
        due: UnixMs(20),
        ..settled
    };
    queue.push(of(newer));
    assert_eq!(take(&queue, SignalClass::Fresh, 1), [of(newer)]);
    queue.finish(&[taken[0].key.clone()]);
    tokio::time::advance(ECHO_OF_KEY).await;
    queue.push(signal("a", Source::Event));
    assert_eq!(waiting(&queue), 1);
}

#[tokio::test]
async fn swept_signals_wait_in_a_class_of_their_own() {
    let queue = queue();
    for name in ["a", "b", "c"] {
        queue.push(signal(name, Source::Sweep));
    }
    queue.push(signal("d", Source::Direct));
    assert_eq!(
        (
            queue.ready(SignalClass::Fresh).await,
            queue.ready(SignalClass::Backlog).await
        ),
        (1, 3)
    );
    assert_eq!(
        take(&queue, SignalClass::Fresh, 9),
        [signal("d", Source::Direct)]
    );
    assert_eq!(take(&queue, SignalClass::Backlog, 2).len(), 2);
}

#[tokio::test]
async fn overflow_drops_signals_and_requests_a_sweep_when_there_is_room() {
    for (source, class, limit) in [
        (Source::Sweep, SignalClass::Backlog, BACKLOG_MAX),
        (Source::Nudge, SignalClass::Fresh, FRESH_MAX),
    ] {
        let queue = queue();
        for n in 0..=limit {
            queue.push(armed(&n.to_string(), source));
        }
        assert_eq!(waiting(&queue), limit);
        let is_wanted = || queue.drained().now_or_never().is_some();
        take(&queue, class, limit / 2);
        assert!(!is_wanted(), "a sweep would find no room");
        take(&queue, class, 1);
        assert!(is_wanted());
    }
}

#[tokio::test]
async fn a_signal_without_an_arming_for_which_there_is_no_room_is_looked_up() {
    let queue = queue();
    for n in 0..FRESH_MAX + 10 {
        queue.push(signal(&n.to_string(), Source::Event));
    }
    queue.push(signal("131072", Source::Event));
    assert_eq!(waiting(&queue), FRESH_MAX);
    let looked_up = queue.unarmed(100).await;
    let names = looked_up
        .iter()
        .map(|signal| signal.key.args().collect::<String>());
    let beyond = (FRESH_MAX..FRESH_MAX + 10).map(|n| n.to_string());
    assert!(names.eq(beyond));
    assert!(queue.unarmed(1).now_or_never().is_none());
}

#[tokio::test]
async fn waiting_signals_without_an_arming_are_listed_and_the_others_stay() {
    let queue = queue();
    for n in 0..4 {
        queue.push(signal(&format!("unarmed{n}"), Source::Event));
        queue.push(armed(&format!("armed{n}"), Source::Nudge));
    }
    let taken = take(&queue, SignalClass::Fresh, 2);
    assert_eq!(taken[0].key, signal("unarmed0", Source::Event).key);
    queue.unarmed_waits().await;
    queue.list_waiting_unarmed();
    assert!(queue.unarmed_waits().now_or_never().is_none());
    assert_eq!((waiting(&queue), queue.unarmed(9).await.len()), (3, 3));
    let left = take(&queue, SignalClass::Fresh, 9);
    let left: Vec<String> = left.iter().map(|it| it.key.args().collect()).collect();
    assert_eq!(left, ["armed1", "armed2", "armed3"]);
}

#[test]
fn expired_keys_that_were_not_looked_up_are_taken_at_the_end() {
    let queue = queue();
    for n in 0..3 {
        queue.push(signal(&n.to_string(), Source::Event));
    }
    queue.push(armed("armed", Source::Nudge));
    queue.list_expired([signal("listed", Source::Event).key]);
    queue.router.reload(&crate::Config::default());
    let mut expired: Vec<String> = queue
        .take_expired()
        .iter()
        .map(|key| key.args().collect())
        .collect();
    expired.sort_unstable();
    assert_eq!(expired, ["0", "1", "2", "listed"]);
    assert!(queue.take_expired().is_empty());
}

#[tokio::test]
async fn after_a_reload_signals_are_routed_in_batches() {
    let count = 3 * ROUTED_AT_ONCE + 1;
    let queue = queue();
    for n in 0..count {
        queue.push(signal(&n.to_string(), Source::Event));
    }
    queue.router.reload(&crate::Config::default());
    assert!(take(&queue, SignalClass::Fresh, 0).is_empty());
    assert_eq!(waiting(&queue), ROUTED_AT_ONCE);
    let mut taken = 0;
    while taken < count {
        queue.ready(SignalClass::Fresh).await;
        taken += take(&queue, SignalClass::Fresh, ROUTED_AT_ONCE).len();
    }
    assert_eq!((taken, waiting(&queue)), (count, 0));
    assert!(!queue.queues().has_unrouted());
}

#[test]
fn what_waits_is_counted_by_class_and_route_and_says_why_it_is_blocked() {
    let free = queue();
    for name in ["a", "b", "c"] {
        free.push(signal(name, Source::Event));
    }
    assert_eq!(free.startable(SignalClass::Fresh), 3);
    assert_eq!(free.startable(SignalClass::Backlog), 0);
    let waiting = free.waiting_by_route();
    assert_eq!(waiting.iter().map(|(_, count)| count).sum::<usize>(), 3);
    let (route, _) = waiting.iter().find(|(_, count)| *count == 3).unwrap();
    assert_eq!(free.blocked(route), None);
    assert!(!free.is_crowded());

    let one_slot = queue_with("[[routes]]\nmatch = '^C@'\nlog = {}\nconcurrency = 1");
    for name in ["a", "b"] {
        one_slot.push(signal(name, Source::Event));
    }
    let (route, _) = one_slot.waiting_by_route().pop().unwrap();
    let taken = one_slot.take(SignalClass::Fresh, 1);
    assert_eq!(taken.len(), 1);
    assert_eq!(one_slot.blocked(&route), Some(Blocked::Concurrency));
    assert_eq!(one_slot.startable(SignalClass::Fresh), 0);
    assert!(!one_slot.is_crowded(), "a slot would not help");
}
