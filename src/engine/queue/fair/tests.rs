mod aside;

use super::*;
use crate::engine::queue::route_load::RoutePermit;
use crate::task::TaskKey;
use crate::timer::Source;
use crate::{Config, Handlers};

/// [`RouteQueues`] over routes that each match one class.
struct Fixture {
    router: Router,
    queues: RouteQueues,
    /// Number of free slots.
    free: usize,
}

impl Fixture {
    fn new(routes: &[(&str, &str)]) -> Self {
        let router = Router::new(Handlers::new(), &config(routes));
        let queues = RouteQueues::new(&router, Arc::default(), Arc::default());
        let free = 1_000;
        Self {
            router,
            queues,
            free,
        }
    }

    fn push(&mut self, class: &str, count: usize) -> Result<(), Refused> {
        (0..count).try_for_each(|n| self.push_in(SignalClass::Fresh, class, n))
    }

    fn push_in(&mut self, waits_as: SignalClass, class: &str, n: usize) -> Result<(), Refused> {
        let key = TaskKey::build(class, "m", [n.to_string()]).unwrap();
        let route = self.router.find(&key).unwrap();
        let (source, arming) = (Source::Nudge, None);
        self.queues
            .push(waits_as, route, Signal::new(key, source, arming), self.free)
    }

    /// Takes signals. Returns their names in order, such as `A0 B0 ..`, and their permits.
    fn take(&mut self, limit: usize, free: usize) -> (String, Vec<RoutePermit>) {
        let taken = self.queues.take(SignalClass::Fresh, limit, free);
        let name = |taken: &Dequeued| taken.signal.key.as_str().replace("@m@", "");
        let names: Vec<String> = taken.iter().map(name).collect();
        (
            names.join(" "),
            taken.into_iter().map(|taken| taken.permit).collect(),
        )
    }
}

fn config(routes: &[(&str, &str)]) -> Config {
    let route = |(class, limits): &(&str, &str)| {
        format!("[[routes]]\nmatch = '^{class}@'\nlog = {{}}\n{limits}\n")
    };
    Config::from_toml(&routes.iter().map(route).collect::<String>()).unwrap()
}

#[test]
fn routes_take_turns() {
    let mut fixture = Fixture::new(&[("A", ""), ("B", ""), ("C", "")]);
    for (class, count) in [("A", 5), ("B", 2), ("C", 1)] {
        fixture.push(class, count).unwrap();
    }
    let (first, _permits) = fixture.take(2, 100);
    let (rest, _more) = fixture.take(9, 100);
    assert_eq!((&first[..], &rest[..]), ("A0 B0", "C0 A1 B1 A2 A3 A4"));
}

#[test]
fn the_highest_priority_goes_first_and_equal_ones_take_turns() {
    let mut fixture = Fixture::new(&[
        ("Low", "priority = -1"),
        ("B", ""),
        ("C", ""),
        ("High", "priority = 9"),
    ]);
    for class in ["Low", "B", "C", "High"] {
        fixture.push(class, 2).unwrap();
    }
    let (order, _permits) = fixture.take(99, 100);
    assert_eq!(order, "High0 High1 B0 C0 B1 C1 Low0 Low1");
}

#[test]
fn a_full_route_does_not_delay_others_and_starts_again_when_a_run_ends() {
    let mut fixture = Fixture::new(&[("A", "concurrency = 2\npriority = 5"), ("B", "")]);
    fixture.push("A", 5).unwrap();
    fixture.push("B", 2).unwrap();
    let (order, mut permits) = fixture.take(4, 100);
    assert_eq!(order, "A0 A1 B0 B1");
    assert_eq!(
        fixture.queues.inspect(SignalClass::Fresh, 100),
        Waiting::Blocked
    );
    assert_eq!(
        fixture.queues.blocked_route("^A@", None, 100),
        Some(Blocked::Concurrency)
    );
    permits.remove(0);
    assert_eq!(
        fixture.queues.inspect(SignalClass::Fresh, 100),
        Waiting::Startable(1)
    );
    assert_eq!(fixture.take(4, 100).0, "A2");
}

#[tokio::test]
async fn a_run_that_ends_wakes_the_workers_of_both_classes() {
    let mut fixture = Fixture::new(&[("A", "concurrency = 1")]);
    fixture.push("A", 2).unwrap();
    let (_, permits) = fixture.take(4, 100);
    let wakeups = Arc::clone(&fixture.queues.wakeups);
    wakeups.watch_for_run_ends();
    assert_eq!(
        fixture.queues.inspect(SignalClass::Fresh, 100),
        Waiting::Blocked
    );
    drop(permits);
    wakeups.arrived(SignalClass::Fresh).notified().await;
    wakeups.arrived(SignalClass::Backlog).notified().await;
}

#[test]
fn with_several_routes_none_takes_the_last_eighth_of_the_slots() {
    let mut fixture = Fixture::new(&[("A", ""), ("B", ""), ("C", "")]);
    fixture.push("A", 100).unwrap();
    let (_, permits) = fixture.take(64, 0);
    assert_eq!(permits.len(), 56);
    assert!(fixture.queues.is_crowded(8));
    // The second route finds a slot, and so does the third.
    fixture.push("B", 100).unwrap();
    let (order, more) = fixture.take(8, 0);
    assert!(
        order.starts_with("B0 B1") && !order.contains('A'),
        "{order}"
    );
    assert_eq!(more.len(), 7);
    fixture.push("C", 1).unwrap();
    assert_eq!(fixture.take(1, 0).0, "C0");
}

#[test]
fn a_single_route_takes_all_slots_and_all_room() {
    let mut fixture = Fixture::new(&[("A", "")]);
    fixture.push("A", 100).unwrap();
    assert_eq!(fixture.take(64, 0).1.len(), 64);
    fixture.push("A", FRESH_MAX - 36).unwrap();
    assert_eq!(fixture.push("A", 1), Err(Refused::Full));
}

#[test]
fn with_several_routes_none_takes_all_the_room() {
    let mut fixture = Fixture::new(&[("A", ""), ("B", ""), ("C", "")]);
    assert_eq!(fixture.push("A", FRESH_MAX), Err(Refused::Full));
    let taken = fixture.queues.waiting(SignalClass::Fresh);
    assert!(
        (FRESH_MAX / 8 * 7..=FRESH_MAX / 8 * 7 + 1).contains(&taken),
        "{taken}"
    );
    assert_eq!(fixture.push("B", FRESH_MAX), Err(Refused::Full));
    fixture.push("C", 100).unwrap();
    assert!(fixture.queues.waiting(SignalClass::Fresh) < FRESH_MAX);
}

#[test]
fn a_sweep_waits_for_room_of_runnable_routes_and_skips_blocked_ones() {
    let mut fixture = Fixture::new(&[("A", "rate = '1/h'"), ("B", "")]);
    let fill = |fixture: &mut Fixture, class| {
        (0..).find_map(|n| fixture.push_in(SignalClass::Backlog, class, n).err())
    };
    assert_eq!(fill(&mut fixture, "A"), Some(Refused::Blocked));
    assert!(fixture.queues.has_room_to_sweep(1_000, 100));
    assert_eq!(fill(&mut fixture, "B"), Some(Refused::Full));
    assert!(!fixture.queues.has_room_to_sweep(1_000, 100));
    assert_eq!(
        fixture.queues.waiting(SignalClass::Backlog),
        2 * BACKLOG_MAX
    );
}

#[test]
fn a_sweep_skips_a_route_that_uses_all_the_slots_it_may() {
    let mut fixture = Fixture::new(&[("A", ""), ("B", "")]);
    let fill = |fixture: &mut Fixture| {
        (0..).find_map(|n| fixture.push_in(SignalClass::Backlog, "A", n).err())
    };
    assert_eq!(fill(&mut fixture), Some(Refused::Full));
    let _permits = fixture.queues.take(SignalClass::Backlog, 56, 8);
    fixture.free = 8;
    assert_eq!(fill(&mut fixture), Some(Refused::Blocked));
    assert!(fixture.queues.has_room_to_sweep(1_000, 8));
}

#[tokio::test(start_paused = true)]
async fn a_route_with_a_rate_limit_starts_as_many_runs_as_were_granted() {
    let mut fixture = Fixture::new(&[("A", "rate = '10/s'"), ("B", "")]);
    fixture.push("A", 5).unwrap();
    fixture.push("B", 1).unwrap();
    assert_eq!(fixture.take(9, 100).0, "B0");
    let wanted = fixture.queues.starts_wanted();
    assert_eq!(wanted.len(), 1);
    assert_eq!(fixture.queues.set_aside("^A@", 9, |_| false).startable, 5);
    assert_eq!(fixture.queues.starts_wanted().len(), 0, "requested once");
    fixture.queues.grant("^A@", 3);
    assert_eq!(
        fixture.queues.inspect(SignalClass::Fresh, 100),
        Waiting::Startable(3)
    );
    let (order, mut permits) = fixture.take(9, 100);
    assert_eq!(order, "A0 A1 A2");
    // Two claims were lost.
    permits[0].start();
    drop(permits);
    assert_eq!(fixture.take(9, 100).0, "A3 A4");
    fixture.queues.end_request("^A@");
    assert_eq!(fixture.queues.starts_wanted().len(), 0, "nothing waits");
}

#[tokio::test(start_paused = true)]
async fn hindered_signals_are_set_aside_before_starts_are_requested() {
    let mut fixture = Fixture::new(&[("A", "rate = '10/s'"), ("B", "")]);
    fixture.push("A", 6).unwrap();
    fixture.push_in(SignalClass::Backlog, "A", 6).unwrap();
    let named = |names: &'static [&'static str]| {
        move |signal: &Signal| names.contains(&&signal.key.as_str()[4..])
    };
    let SetAside { signals, startable } =
        fixture.queues.set_aside("^A@", 2, named(&["0", "2", "5"]));
    let aside: Vec<&str> = signals.iter().map(|signal| signal.key.as_str()).collect();
    assert_eq!(aside, ["A@m@0", "A@m@2"], "signals further back still wait");
    assert_eq!(startable, 3);
    fixture.queues.grant("^A@", 9);
    assert_eq!(fixture.take(9, 100).0, "A1 A3 A4 A5");
    let SetAside { signals, startable } = fixture.queues.set_aside("^A@", 9, |_| true);
    assert_eq!((signals.len(), startable), (1, 0));
    assert_eq!(fixture.queues.waiting(SignalClass::Backlog), 0);
    assert_eq!(
        fixture.queues.inspect(SignalClass::Backlog, 100),
        Waiting::Nothing
    );
    assert_eq!(fixture.queues.starts_wanted().len(), 0, "nothing waits");
}

#[test]
fn a_reload_routes_waiting_signals_again_and_still_counts_their_runs() {
    let mut fixture = Fixture::new(&[("A", "concurrency = 2"), ("B", "")]);
    fixture.push("A", 3).unwrap();
    fixture.push("B", 2).unwrap();
    let (_, permits) = fixture.take(1, 100);
    fixture.router.reload(&config(&[("A", "concurrency = 1")]));
    assert!(!fixture.queues.is_current(&fixture.router));
    let waiting = fixture.queues.reroute(&fixture.router);
    assert!(fixture.queues.is_current(&fixture.router));
    assert_eq!(
        (waiting.len(), fixture.queues.waiting(SignalClass::Fresh)),
        (4, 0)
    );
    for (class, signal) in waiting {
        if let Some(route) = fixture.router.find(&signal.key) {
            fixture
                .queues
                .push(class, route, signal, fixture.free)
                .unwrap();
        }
    }
    fixture.queues.forget_loads();
    assert_eq!(fixture.queues.waiting(SignalClass::Fresh), 2);
    assert_eq!(
        fixture.queues.inspect(SignalClass::Fresh, 100),
        Waiting::Blocked
    );
    drop(permits);
    assert_eq!(fixture.take(9, 100).0, "A1");
}
