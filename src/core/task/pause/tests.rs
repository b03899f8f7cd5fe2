use super::*;

fn pause(kind: PauseKind, scope: &str) -> Pause {
    Pause {
        kind,
        scope: match scope {
            "everything" => Scope::EVERYTHING,
            name => name.parse().unwrap(),
        },
        since: UnixMs(0),
        due_before: (kind == PauseKind::Hold).then_some(UnixMs(100)),
        until: None,
        by: String::new(),
        reason: String::new(),
    }
}

fn blocked_by(pauses: &[Pause], key: &str, due: i64) -> Option<BlockedBy> {
    Paused::of(pauses).blocks(&TaskKey::parse(key).unwrap(), UnixMs(due))
}

#[test]
fn names_are_exact() {
    let paused = [
        pause(PauseKind::Pause, "Order"),
        pause(PauseKind::Pause, "User@mail"),
    ];
    for key in ["Order@close", "Order@mail@1", "User@mail", "User@mail@7"] {
        assert_eq!(
            blocked_by(&paused, key, 0),
            Some(BlockedBy::Paused),
            "{key}"
        );
    }
    for key in [
        "Orders@close",
        "order@close",
        "Orde@r",
        "User@mails",
        "User@m",
        "Mail@User",
    ] {
        assert_eq!(blocked_by(&paused, key, 0), None, "{key}");
    }
}

#[test]
fn a_hold_keeps_tasks_due_before_it_unless_released() {
    let hold = pause(PauseKind::Hold, "everything");
    let held = [hold.clone(), pause(PauseKind::Release, "Order@close")];
    assert_eq!(blocked_by(&held, "Order@pay@1", 99), Some(BlockedBy::Held));
    assert_eq!(blocked_by(&held, "Order@pay@1", 100), None);
    assert_eq!(blocked_by(&held, "Order@close@1", 99), None);
    assert_eq!(
        blocked_by(&[pause(PauseKind::Release, "Order")], "Order@pay", 99),
        None
    );
}

#[test]
fn tasks_that_may_start_again_are_noticed() {
    let [all, order, hold, release] = [
        pause(PauseKind::Pause, "everything"),
        pause(PauseKind::Pause, "Order"),
        pause(PauseKind::Hold, "everything"),
        pause(PauseKind::Release, "Order"),
    ];
    let lets_go = |before: &[&Pause], after: &[&Pause]| {
        let of =
            |pauses: &[&Pause]| Paused::of(&pauses.iter().copied().cloned().collect::<Vec<_>>());
        of(after).unblocks(&of(before))
    };
    assert!(lets_go(&[&all], &[]));
    assert!(lets_go(&[&order, &hold], &[&hold]));
    assert!(lets_go(&[&hold], &[&order]));
    assert!(lets_go(&[&hold], &[&hold, &release]));
    assert!(!lets_go(&[], &[&all, &order, &hold]));
    assert!(!lets_go(&[&order], &[&order, &all]));
}

#[test]
fn a_scope_reads_back_as_displayed_and_includes_narrower_ones() {
    for text in ["Order", "Order@close", r"App\Order@close", "_x-1.y:z"] {
        assert_eq!(text.parse::<Scope>().unwrap().to_string(), text);
    }
    for text in [
        "",
        "Order@",
        "@close",
        "9Order",
        "Order@close@",
        "Ord er",
        "Order*",
    ] {
        assert!(text.parse::<Scope>().is_err(), "{text}");
    }
    let scope = |text: &str| text.parse::<Scope>().unwrap();
    assert!(Scope::EVERYTHING.includes(&scope("Order")));
    assert!(scope("Order").includes(&scope("Order@close")));
    assert!(!scope("Order@close").includes(&scope("Order")));
    assert!(!scope("Order").includes(&scope("Orders")));
}

#[test]
fn a_scope_covers_a_class_or_a_method() {
    let key = |text: &str| TaskKey::parse(text).unwrap();
    for (scope, covered) in [
        (Scope::EVERYTHING, [true, true, true]),
        ("Order".parse().unwrap(), [true, true, false]),
        ("Order@close".parse().unwrap(), [true, false, false]),
    ] {
        let keys = ["Order@close@1", "Order@pay@1", "User@close@1"];
        assert_eq!(
            keys.map(|text| scope.covers(&key(text))),
            covered,
            "{scope}"
        );
    }
    let error = "Order@close@1".parse::<Scope>().unwrap_err();
    assert!(matches!(error, ScopeError::Arguments { .. }), "{error}");
}

#[test]
fn a_pause_says_since_when_until_when_by_whom_and_why() {
    let time = |at: UnixMs| at.0.to_string();
    let bare = pause(PauseKind::Pause, "Order");
    assert_eq!(bare.origin(time), "since 0");
    let full = Pause {
        until: Some(UnixMs(9)),
        by: "ann".into(),
        reason: "a reason".into(),
        ..bare
    };
    assert_eq!(full.origin(time), "since 0 until 9 by ann: a reason");
}

#[test]
fn what_is_paused_or_held_is_told() {
    let of = |pauses: &[(PauseKind, &str)]| {
        let pauses = pauses.iter().map(|(kind, scope)| pause(*kind, scope));
        Paused::of(&pauses.collect::<Vec<_>>())
    };
    for (paused, is_empty, is_everything, held_before) in [
        (of(&[]), true, false, None),
        (of(&[(PauseKind::Release, "Order")]), true, false, None),
        (of(&[(PauseKind::Pause, "Order")]), false, false, None),
        (of(&[(PauseKind::Pause, "everything")]), false, true, None),
        (
            of(&[(PauseKind::Hold, "everything")]),
            false,
            false,
            Some(UnixMs(100)),
        ),
    ] {
        assert_eq!(paused.is_empty(), is_empty, "{paused:?}");
        assert_eq!(paused.is_everything(), is_everything, "{paused:?}");
        assert_eq!(paused.held_before(), held_before, "{paused:?}");
    }
    assert_eq!(BlockedBy::Paused.as_str(), "paused");
    assert_eq!(BlockedBy::Held.as_str(), "held");
}

#[test]
fn a_task_may_start_once_what_blocked_it_has_ended() {
    let of = |pauses: &[(PauseKind, &str)]| {
        let pauses = pauses.iter().map(|(kind, scope)| pause(*kind, scope));
        Paused::of(&pauses.collect::<Vec<_>>())
    };
    let [order, all, hold] = [
        (PauseKind::Pause, "Order"),
        (PauseKind::Pause, "everything"),
        (PauseKind::Hold, "everything"),
    ];
    let release = (PauseKind::Release, "Order");
    for (before, now, expected) in [
        (of(&[]), of(&[]), false),
        (of(&[]), of(&[order, all, hold]), false),
        (of(&[order]), of(&[order]), false),
        (of(&[order]), of(&[]), true),
        (of(&[all]), of(&[all]), false),
        (of(&[all]), of(&[order]), true),
        (of(&[hold]), of(&[hold]), false),
        (of(&[hold]), of(&[]), true),
        (of(&[hold]), of(&[hold, release]), true),
        (of(&[hold, release]), of(&[hold]), false),
    ] {
        assert_eq!(now.unblocks(&before), expected, "{before:?}, {now:?}");
    }
}

#[test]
fn a_pause_with_an_end_is_over_from_its_end_on() {
    let ends = |until| Pause {
        until,
        ..pause(PauseKind::Pause, "Order")
    };
    let until = Some(UnixMs(10));
    assert!(!ends(until).is_over(UnixMs(9)));
    assert!(ends(until).is_over(UnixMs(10)) && ends(until).is_over(UnixMs(11)));
    assert!(!ends(None).is_over(UnixMs(10)));
}
