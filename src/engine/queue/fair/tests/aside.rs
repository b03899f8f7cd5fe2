//! Signals that are removed without starting, and loads of routes that are gone.

use super::*;

fn names(signals: &[Signal]) -> Vec<&str> {
    signals.iter().map(|signal| signal.key.as_str()).collect()
}

#[test]
fn a_queue_whose_signals_were_all_removed_has_no_turn_until_another_arrives() {
    let mut fixture = Fixture::new(&[("A", ""), ("B", ""), ("C", "priority = 1")]);
    for class in ["A", "B", "C"] {
        fixture.push(class, 2).unwrap();
    }
    let aside = fixture.queues.set_aside("^A@", 9, |_| true);
    assert_eq!(names(&aside.signals), ["A@m@0", "A@m@1"]);
    fixture.push("A", 1).unwrap();
    assert_eq!(fixture.take(9, 100).0, "C0 C1 B0 A0 B1");
    assert_eq!(fixture.take(9, 100).0, "");
}

#[test]
fn a_queue_that_keeps_some_of_its_signals_keeps_its_turn() {
    let mut fixture = Fixture::new(&[("A", ""), ("B", "")]);
    fixture.push("A", 2).unwrap();
    fixture.push("B", 1).unwrap();
    let is_first = |signal: &Signal| signal.key.as_str() == "A@m@0";
    let aside = fixture.queues.set_aside("^A@", 9, is_first);
    assert_eq!(names(&aside.signals), ["A@m@0"]);
    assert_eq!(fixture.take(9, 100).0, "A1 B0");
}

#[test]
fn signals_without_an_arming_are_taken_up_to_the_limit_and_counted() {
    let mut fixture = Fixture::new(&[("A", ""), ("B", "")]);
    fixture.push("A", 3).unwrap();
    fixture.push("B", 1).unwrap();
    assert_eq!(fixture.queues.take_unarmed(0).len(), 0);
    let taken = fixture.queues.take_unarmed(2);
    assert_eq!(names(&taken), ["A@m@1", "A@m@2"]);
    assert!(fixture.queues.has_unarmed());
    let taken = fixture.queues.take_unarmed(9);
    assert_eq!(names(&taken), ["A@m@0", "B@m@0"]);
    assert!(!fixture.queues.has_unarmed());
    assert_eq!(fixture.queues.waiting(SignalClass::Fresh), 0);
    assert_eq!(fixture.take(9, 100).0, "");

    fixture.push("A", 2).unwrap();
    fixture.queues.set_aside("^A@", 9, |_| true);
    assert!(!fixture.queues.has_unarmed());
}

#[test]
fn the_load_of_a_removed_route_is_kept_while_it_has_runs() {
    let mut fixture = Fixture::new(&[("A", ""), ("B", "")]);
    fixture.push("A", 2).unwrap();
    fixture.push("B", 1).unwrap();
    let (_, mut permits) = fixture.take(9, 100);
    drop(permits.pop());
    fixture.router.reload(&config(&[("C", "")]));
    fixture.queues.reroute(&fixture.router);
    fixture.push("C", 1).unwrap();
    let loads = |fixture: &mut Fixture| {
        fixture.queues.forget_loads();
        let mut names: Vec<String> = fixture
            .queues
            .loads
            .keys()
            .map(ToString::to_string)
            .collect();
        names.sort_unstable();
        names
    };
    let before = permits.len();
    assert_eq!(before, 2);
    let with_runs = loads(&mut fixture);
    drop(permits);
    let without = loads(&mut fixture);
    assert_eq!(without, ["^C@"]);
    assert!(with_runs.contains(&"^A@".to_owned()), "{with_runs:?}");
    assert!(with_runs.contains(&"^C@".to_owned()), "{with_runs:?}");
}
