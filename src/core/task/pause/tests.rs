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
