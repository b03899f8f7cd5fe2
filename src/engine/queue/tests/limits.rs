//! What a full, blocked or reloaded queue does with its signals, and whom it wakes.

use super::*;
use crate::engine::queue::by_key::ROUTED_AT_ONCE;
use crate::handler::Route;

const PULL: &str = "[[routes]]\nmatch = '^C@'\npull = { queue = 'mail', visibility = '10s' }\n";
const LOG: &str = "[[routes]]\nmatch = '^C@'\nlog = {}\n";

fn reload(queue: &SignalQueue, routes: &str) {
    let config = crate::Config::from_toml(routes).unwrap();
    queue.router.reload(&config);
}

fn counted(queue: &SignalQueue, metric: &str) -> u64 {
    let text = queue.metrics.render();
    let line = text.lines().find_map(|line| line.strip_prefix(metric));
    line.map_or(0, |count| count.trim().parse().unwrap())
}

fn dropped(queue: &SignalQueue, reason: &str) -> u64 {
    let metric = format!("lapsed_signals_dropped_total{{reason=\"{reason}\"}}");
    counted(queue, &metric)
}

/// True if a worker would be woken. Forgets it.
fn is_woken(queue: &SignalQueue) -> bool {
    let arrived = queue.wakeups.arrived(SignalClass::Fresh);
    arrived.notified().now_or_never().is_some()
}

fn route(queue: &SignalQueue) -> Route {
    let key = signal("any", Source::Event).key;
    queue.router.find(&key).unwrap()
}

/// The demand of workers that ask for a number of tasks.
fn ask(queue: &SignalQueue, tasks: usize) {
    let demand = queue.demands().of(&"mail".into());
    let (group, _) = demand.group_of(&[]).unwrap();
    demand.set_active(true);
    demand.add(group, tasks);
}

fn names(signals: &[Signal]) -> Vec<String> {
    let name = |signal: &Signal| signal.key.args().collect();
    signals.iter().map(name).collect()
}

#[test]
fn a_worker_that_took_some_wakes_the_next_one_if_some_are_left() {
    let queue = queue_with(&format!("{LOG}concurrency = 2\n"));
    for name in ["a", "b", "c"] {
        queue.push(signal(name, Source::Event));
    }
    while is_woken(&queue) {}
    let first = queue.take(SignalClass::Fresh, 1);
    assert!(is_woken(&queue), "two are left");
    let second = queue.take(SignalClass::Fresh, 1);
    assert!(is_woken(&queue), "one is left");
    assert!(queue.take(SignalClass::Fresh, 1).is_empty());
    assert!(!is_woken(&queue), "the route is full");
    drop((first, second));
    while is_woken(&queue) {}
    assert_eq!(queue.take(SignalClass::Fresh, 1).len(), 1);
    assert!(!is_woken(&queue), "none is left");
}

#[test]
fn only_granted_starts_and_new_demand_wake_a_worker() {
    let queue = queue_with(&format!("{LOG}rate = '1/h'\n"));
    queue.push(signal("a", Source::Event));
    while is_woken(&queue) {}
    queue.grant("^C@", 0);
    assert!(!is_woken(&queue));
    queue.grant("^C@", 1);
    assert!(is_woken(&queue));

    while queue.wakeups.starved.notified().now_or_never().is_some() {}
    queue.demand_grew();
    assert!(is_woken(&queue));
    let starved = queue.wakeups.starved.notified();
    assert!(starved.now_or_never().is_some(), "rates look again, too");
}

#[tokio::test]
async fn free_slots_are_those_without_a_permit() {
    let queue = queue();
    assert_eq!(queue.free_slots(), 256);
    let permits = queue.permits(SignalClass::Fresh, 6).await;
    assert_eq!((permits.count(), queue.free_slots()), (6, 250));
    drop(permits);
    assert_eq!(queue.free_slots(), 256);
}

#[tokio::test]
async fn signals_that_wait_only_for_slots_of_other_routes_are_told() {
    let queue = queue_with(&format!("{LOG}{}", LOG.replace("C@", "D@")));
    for n in 0..9 {
        queue.push(signal(&n.to_string(), Source::Event));
    }
    let _slots = queue.permits(SignalClass::Fresh, 256).await;
    assert_eq!(queue.free_slots(), 0);
    assert!(!queue.is_crowded());
    let taken = queue.take(SignalClass::Fresh, 7);
    assert_eq!(taken.len(), 7);
    assert!(queue.is_crowded());
    drop(taken);
    assert!(!queue.is_crowded());
}

#[test]
fn a_route_of_which_nothing_waits_is_not_blocked() {
    let queue = queue_with(&format!("{LOG}concurrency = 1\n"));
    queue.push(signal("a", Source::Event));
    let _runs = queue.take(SignalClass::Fresh, 1);
    assert_eq!(queue.blocked("^C@"), None);
    queue.push(signal("b", Source::Event));
    assert_eq!(queue.blocked("^C@"), Some(Blocked::Concurrency));
}

#[tokio::test]
async fn the_start_of_a_run_that_did_nothing_is_given_back() {
    for gives_back in [true, false] {
        let queue = queue_with(&format!("{LOG}rate = '1/h'\n"));
        queue.push(signal("a", Source::Event));
        queue.push(signal("b", Source::Event));
        queue.grant("^C@", 1);
        let mut permits = queue.permits(SignalClass::Fresh, 1).await;
        let taken = queue.take(SignalClass::Fresh, 1).pop().unwrap();
        let mut run = permits.split(taken.permit).unwrap();
        assert_eq!(queue.startable(SignalClass::Fresh), 0);
        if gives_back {
            run.give_start_back();
        }
        drop(run);
        let expected = usize::from(gives_back);
        assert_eq!(queue.startable(SignalClass::Fresh), expected);
    }
}

#[test]
fn a_sweep_has_room_until_half_of_a_queue_is_full() {
    let queue = queue();
    let room = || queue.has_room_to_sweep(10 * BACKLOG_MAX);
    assert!(room());
    for n in 0..BACKLOG_MAX / 2 {
        queue.push(armed(&n.to_string(), Source::Sweep));
    }
    assert!(room());
    queue.push(armed("one more", Source::Sweep));
    assert!(!room());
    assert!(queue.has_room_to_sweep(BACKLOG_MAX / 2 - 1));
}

#[test]
fn a_signal_that_is_put_back_waits_again() {
    let queue = queue();
    queue.push(signal("a", Source::Event));
    let (route, _) = queue.waiting_by_route().into_iter().max().unwrap();
    let aside = queue.set_aside(&route, 9, |_| true).signals;
    assert_eq!((aside.len(), waiting(&queue)), (1, 0));
    queue.finish([&aside[0].key]);
    queue.put_back(aside[0].clone());
    assert_eq!(take(&queue, SignalClass::Fresh, 9), aside);
}

#[test]
fn what_a_sweep_finds_is_counted_as_recovered() {
    let queue = queue();
    const RECOVERED: &str = "lapsed_sweep_recovered_total{reason=\"overdue\"}";
    for (source, expected) in [
        (Source::Event, 0),
        (Source::Nudge, 0),
        (Source::Direct, 0),
        (Source::Sweep, 1),
    ] {
        queue.push(signal(source.as_str(), source));
        assert_eq!(counted(&queue, RECOVERED), expected, "{source:?}");
    }
}

#[test]
fn a_signal_that_nothing_here_runs_is_counted() {
    let queue = queue_with(&LOG.replace("C@", "Other@"));
    queue.push(signal("a", Source::Event));
    assert_eq!(dropped(&queue, "unroutable"), 1);
    queue.unroutable(&signal("a", Source::Event).key);
    assert_eq!(dropped(&queue, "unroutable"), 2);
    assert_eq!(waiting(&queue), 0);
}

#[tokio::test(start_paused = true)]
async fn signals_of_a_removed_route_are_dropped_and_those_behind_them_start() {
    const REMOVED: usize = 4 * ROUTED_AT_ONCE;
    let other = LOG.replace("C@", "D@");
    let queue = queue_with(&format!("{LOG}{other}"));
    for n in 0..REMOVED {
        queue.push(signal(&n.to_string(), Source::Event));
    }
    let key = TaskKey::build("D", "m", ["1"]).unwrap();
    let (source, arming) = (Source::Event, None);
    let left = Signal::new(key, source, arming);
    queue.push(left.clone());
    reload(&queue, &other);
    let ready = queue.ready(SignalClass::Fresh);
    let ready = timeout(Duration::from_secs(10), ready).await;
    assert_eq!(ready, Ok(1));
    assert_eq!(take(&queue, SignalClass::Fresh, 9), [left]);
    assert_eq!(dropped(&queue, "unroutable"), REMOVED as u64);
    assert!(queue.unarmed(9).now_or_never().is_none());
}

#[tokio::test]
async fn after_a_reload_signals_without_an_arming_for_which_there_is_no_room_are_looked_up() {
    let queue = queue_with(LOG);
    queue.push(signal("unarmed", Source::Event));
    queue.push(armed("armed", Source::Nudge));
    // No worker asks for them.
    reload(&queue, PULL);
    assert_eq!(queue.waiting(SignalClass::Fresh), 0);
    assert_eq!(names(&queue.unarmed(9).await), ["unarmed"]);
    assert_eq!(dropped(&queue, "unroutable"), 0);
}

#[test]
fn signals_that_have_no_route_since_a_reload_are_taken_to_be_looked_up() {
    let queue = queue();
    for n in 0..ROUTED_AT_ONCE {
        queue.push(armed(&n.to_string(), Source::Nudge));
    }
    queue.push(armed("armed", Source::Nudge));
    for name in ["a", "b", "c"] {
        queue.push(signal(name, Source::Event));
    }
    queue.router.reload(&crate::Config::default());
    let mut queues = queue.current_queues();
    assert!(queues.has_unrouted());
    assert_eq!(names(&queues.take_unarmed(2)), ["a", "b"]);
    assert_eq!(names(&queues.take_unarmed(9)), ["c"]);
    assert!(queues.has_unrouted(), "one with an arming is left");
    drop(queues);
    let taken = take(&queue, SignalClass::Fresh, 2 * ROUTED_AT_ONCE);
    assert_eq!(taken.len(), ROUTED_AT_ONCE + 1);
}

#[tokio::test]
async fn a_signal_without_an_arming_waits_only_for_workers_that_ask_now() {
    let queue = queue_with(PULL);
    let route = route(&queue);
    assert!(queue.is_idle(&route), "no worker has asked");
    ask(&queue, 1);
    assert!(!queue.is_idle(&route));
    queue.push(signal("waits", Source::Event));
    assert!(queue.has_pulled("mail") && !queue.has_pulled("other"));
    let key = signal("like", Source::Event).key;
    assert_eq!(queue.blocked_like(&route, &key), None);
    let taken = queue.take(SignalClass::Fresh, 9);
    assert_eq!(taken.len(), 1);
    assert!(!queue.has_pulled("mail"));

    queue.push(armed("armed", Source::Nudge));
    queue.push(signal("unarmed", Source::Event));
    let demand = Some(Blocked::Demand);
    assert_eq!(queue.blocked_like(&route, &key), demand);
    assert_eq!(waiting(&queue), 1, "its row is known");
    assert_eq!(names(&queue.unarmed(9).await), ["unarmed"]);
}

#[tokio::test]
async fn a_task_that_a_worker_has_no_longer_reserves_its_demand() {
    let queue = queue_with(PULL);
    ask(&queue, 1);
    queue.push(signal("a", Source::Event));
    let mut permits = queue.permits(SignalClass::Fresh, 1).await;
    let taken = queue.take(SignalClass::Fresh, 1).pop().unwrap();
    let demand = queue.demands().of(&"mail".into());
    assert_eq!(demand.capacity_for(0), 0);
    let handed_over = permits.split(taken.permit).unwrap().into_route_permit();
    assert!(handed_over.is_some());
    assert_eq!(demand.capacity_for(0), 1);
}
