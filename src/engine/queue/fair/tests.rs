use super::*;
use crate::task::TaskKey;
use crate::timer::Source;
use crate::{Config, HandlerRegistry};

/// RouteQueues of these routes, each a class of its own: name, and what limits it.
struct Desk {
    router: Router,
    lines: RouteQueues,
    /// Free slots.
    free: usize,
}

impl Desk {
    fn new(routes: &[(&str, &str)]) -> Self {
        let router = Router::new(HandlerRegistry::new(), &config(routes));
        let lines = RouteQueues::new(&router, Arc::default());
        let free = 1_000;
        Self {
            router,
            lines,
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
        self.lines.push(
            waits_as,
            route,
            Signal {
                key,
                source,
                arming,
            },
            self.free,
        )
    }

    /// What comes next, in its order, as `A0 B0 ..`; and the seats.
    fn take(&mut self, limit: usize, free: usize) -> (String, Vec<RoutePermit>) {
        let taken = self.lines.take(SignalClass::Fresh, limit, free);
        let name = |taken: &Taken| taken.signal.key.as_str().replace("@m@", "");
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
    let mut desk = Desk::new(&[("A", ""), ("B", ""), ("C", "")]);
    for (class, count) in [("A", 5), ("B", 2), ("C", 1)] {
        desk.push(class, count).unwrap();
    }
    let (first, _seats) = desk.take(2, 100);
    let (rest, _more) = desk.take(9, 100);
    assert_eq!((&first[..], &rest[..]), ("A0 B0", "C0 A1 B1 A2 A3 A4"));
}

#[test]
fn the_highest_priority_goes_first_and_equal_ones_take_turns() {
    let mut desk = Desk::new(&[
        ("Low", "priority = -1"),
        ("B", ""),
        ("C", ""),
        ("High", "priority = 9"),
    ]);
    for class in ["Low", "B", "C", "High"] {
        desk.push(class, 2).unwrap();
    }
    let (order, _seats) = desk.take(99, 100);
    assert_eq!(order, "High0 High1 B0 C0 B1 C1 Low0 Low1");
}

#[test]
fn a_full_route_waits_without_holding_up_others_and_goes_on_when_a_run_ends() {
    let mut desk = Desk::new(&[("A", "concurrency = 2\npriority = 5"), ("B", "")]);
    desk.push("A", 5).unwrap();
    desk.push("B", 2).unwrap();
    let (order, mut seats) = desk.take(4, 100);
    assert_eq!(order, "A0 A1 B0 B1");
    assert_eq!(desk.lines.look(SignalClass::Fresh, 100), Waiting::Held);
    assert_eq!(desk.lines.held_route("^A@", 100), Some(Held::Concurrency));
    seats.remove(0);
    assert_eq!(
        desk.lines.look(SignalClass::Fresh, 100),
        Waiting::Startable(1)
    );
    assert_eq!(desk.take(4, 100).0, "A2");
}

#[tokio::test]
async fn who_waits_for_a_run_to_end_hears_of_it() {
    let mut desk = Desk::new(&[("A", "concurrency = 1")]);
    desk.push("A", 2).unwrap();
    let (_, seats) = desk.take(4, 100);
    let wakeups = Arc::clone(&desk.lines.wakeups);
    wakeups.listen_for_ends();
    assert_eq!(desk.lines.look(SignalClass::Fresh, 100), Waiting::Held);
    drop(seats);
    wakeups.arrived(SignalClass::Fresh).notified().await;
    wakeups.arrived(SignalClass::Backlog).notified().await;
}

#[test]
fn where_there_are_several_routes_none_takes_the_last_eighth_of_the_slots() {
    let mut desk = Desk::new(&[("A", ""), ("B", ""), ("C", "")]);
    desk.push("A", 100).unwrap();
    let (_, seats) = desk.take(64, 0);
    assert_eq!(seats.len(), 56);
    assert!(desk.lines.is_crowded(8));
    // Whoever comes then finds a slot, and so does the third.
    desk.push("B", 100).unwrap();
    let (order, more) = desk.take(8, 0);
    assert!(
        order.starts_with("B0 B1") && !order.contains('A'),
        "{order}"
    );
    assert_eq!(more.len(), 7);
    desk.push("C", 1).unwrap();
    assert_eq!(desk.take(1, 0).0, "C0");
}

#[test]
fn a_route_alone_takes_all_slots_and_all_room() {
    let mut desk = Desk::new(&[("A", "")]);
    desk.push("A", 100).unwrap();
    assert_eq!(desk.take(64, 0).1.len(), 64);
    desk.push("A", FRESH_MAX - 36).unwrap();
    assert_eq!(desk.push("A", 1), Err(Refused::Full));
}

#[test]
fn no_route_takes_all_the_room_to_wait() {
    let mut desk = Desk::new(&[("A", ""), ("B", ""), ("C", "")]);
    assert_eq!(desk.push("A", FRESH_MAX), Err(Refused::Full));
    let taken = desk.lines.waiting(SignalClass::Fresh);
    assert!(
        (FRESH_MAX / 8 * 7..=FRESH_MAX / 8 * 7 + 1).contains(&taken),
        "{taken}"
    );
    assert_eq!(desk.push("B", FRESH_MAX), Err(Refused::Full));
    desk.push("C", 100).unwrap();
    assert!(desk.lines.waiting(SignalClass::Fresh) < FRESH_MAX);
}

#[test]
fn a_sweep_stops_for_what_can_start_and_passes_by_what_is_held() {
    let mut desk = Desk::new(&[("A", "rate = '1/h'"), ("B", "")]);
    let fill = |desk: &mut Desk, class| {
        (0..).find_map(|n| desk.push_in(SignalClass::Backlog, class, n).err())
    };
    assert_eq!(fill(&mut desk, "A"), Some(Refused::Held));
    assert!(desk.lines.has_room_to_sweep(1_000, 100));
    assert_eq!(fill(&mut desk, "B"), Some(Refused::Full));
    assert!(!desk.lines.has_room_to_sweep(1_000, 100));
    assert_eq!(desk.lines.waiting(SignalClass::Backlog), 2 * SWEPT_MAX);
}

#[test]
fn a_route_that_holds_all_the_slots_it_may_is_passed_by() {
    let mut desk = Desk::new(&[("A", ""), ("B", "")]);
    let fill =
        |desk: &mut Desk| (0..).find_map(|n| desk.push_in(SignalClass::Backlog, "A", n).err());
    assert_eq!(fill(&mut desk), Some(Refused::Full));
    let _seats = desk.lines.take(SignalClass::Backlog, 56, 8);
    desk.free = 8;
    assert_eq!(fill(&mut desk), Some(Refused::Held));
    assert!(desk.lines.has_room_to_sweep(1_000, 8));
}

#[tokio::test(start_paused = true)]
async fn a_route_with_a_rate_starts_what_was_granted() {
    let mut desk = Desk::new(&[("A", "rate = '10/s'"), ("B", "")]);
    desk.push("A", 5).unwrap();
    desk.push("B", 1).unwrap();
    assert_eq!(desk.take(9, 100).0, "B0");
    let wants = desk.lines.wants();
    assert_eq!(wants.len(), 1);
    assert_eq!(desk.lines.set_aside("^A@", 9, |_| false).startable, 5);
    assert_eq!(desk.lines.wants().len(), 0, "it is asked once");
    desk.lines.grant("^A@", 3);
    assert_eq!(
        desk.lines.look(SignalClass::Fresh, 100),
        Waiting::Startable(3)
    );
    let (order, mut seats) = desk.take(9, 100);
    assert_eq!(order, "A0 A1 A2");
    // Two claims were lost.
    seats[0].start();
    drop(seats);
    assert_eq!(desk.take(9, 100).0, "A3 A4");
    desk.lines.answered("^A@");
    assert_eq!(desk.lines.wants().len(), 0, "nothing waits");
}

#[tokio::test(start_paused = true)]
async fn what_may_not_start_is_set_aside_before_starts_are_asked_for() {
    let mut desk = Desk::new(&[("A", "rate = '10/s'"), ("B", "")]);
    desk.push("A", 6).unwrap();
    desk.push_in(SignalClass::Backlog, "A", 6).unwrap();
    let named = |names: &'static [&'static str]| {
        move |signal: &Signal| names.contains(&&signal.key.as_str()[4..])
    };
    let SetAside { signals, startable } = desk.lines.set_aside("^A@", 2, named(&["0", "2", "5"]));
    let aside: Vec<&str> = signals.iter().map(|signal| signal.key.as_str()).collect();
    assert_eq!(
        aside,
        ["A@m@0", "A@m@2"],
        "what stands further behind waits on"
    );
    assert_eq!(startable, 3);
    desk.lines.grant("^A@", 9);
    assert_eq!(desk.take(9, 100).0, "A1 A3 A4 A5");
    let SetAside { signals, startable } = desk.lines.set_aside("^A@", 9, |_| true);
    assert_eq!((signals.len(), startable), (1, 0));
    assert_eq!(desk.lines.waiting(SignalClass::Backlog), 0);
    assert_eq!(desk.lines.look(SignalClass::Backlog, 100), Waiting::Nothing);
    assert_eq!(desk.lines.wants().len(), 0, "nothing waits");
}

#[test]
fn a_reload_finds_the_routes_anew_and_runs_count_on() {
    let mut desk = Desk::new(&[("A", "concurrency = 2"), ("B", "")]);
    desk.push("A", 3).unwrap();
    desk.push("B", 2).unwrap();
    let (_, seats) = desk.take(1, 100);
    desk.router.reload(&config(&[("A", "concurrency = 1")]));
    assert!(!desk.lines.are_of(&desk.router));
    let waited = desk.lines.reroute(&desk.router);
    assert!(desk.lines.are_of(&desk.router));
    assert_eq!(
        (waited.len(), desk.lines.waiting(SignalClass::Fresh)),
        (4, 0)
    );
    for (class, signal) in waited {
        if let Some(route) = desk.router.find(&signal.key) {
            desk.lines.push(class, route, signal, desk.free).unwrap();
        }
    }
    desk.lines.forget_loads();
    assert_eq!(desk.lines.waiting(SignalClass::Fresh), 2);
    assert_eq!(desk.lines.look(SignalClass::Fresh, 100), Waiting::Held);
    drop(seats);
    assert_eq!(desk.take(9, 100).0, "A1");
}
