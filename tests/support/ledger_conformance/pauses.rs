//! Pauses and holds, and what a scan leaves out for them.

use std::time::Duration;

use lapsed::ledger::{
    DueScan, Ledger, PAUSES_MAX, PauseAnswer, Pauses, REASON_CHARS_MAX, ReleaseAnswer,
    RunNowAnswer, Window,
};
use lapsed::task::{Due, PauseKind, Paused, Scope, TaskKey};

use crate::ledger_conformance::rig::{create, pass};

rules! {
    a_pause_is_active_until_it_is_removed
    pausing_twice_changes_nothing_and_says_who_was_first
    a_pause_is_over_when_its_end_has_come
    pausing_again_replaces_the_end_only
    an_end_that_is_not_ahead_is_refused
    a_reason_that_is_too_long_is_refused
    a_hold_covers_tasks_due_before_it_and_is_released_in_parts
    a_release_does_not_affect_the_next_hold
    a_scan_goes_around_what_is_paused_and_held
    pauses_are_limited_and_can_be_removed_at_the_limit
    run_now_lets_a_held_task_go
}

fn scope(name: &str) -> Scope {
    name.parse().unwrap()
}

async fn paused(ledger: &impl Pauses) -> Vec<(PauseKind, String)> {
    let all = ledger.pauses().await.unwrap().into_iter();
    all.map(|pause| (pause.kind, pause.scope.to_string()))
        .collect()
}

async fn a_pause_is_active_until_it_is_removed(ledger: &impl Ledger) {
    let before = ledger.sync_clock().await.unwrap();
    for name in ["Order", "Order@close"] {
        ledger
            .pause(&scope(name), None, "me", "because")
            .await
            .unwrap();
        pass(ledger, ledger.sync_clock().await.unwrap()).await;
    }
    ledger
        .pause(&Scope::EVERYTHING, None, "me", "")
        .await
        .unwrap();
    let expected = ["Order", "Order@close", "everything"];
    let expected = expected.map(|name| (PauseKind::Pause, name.to_owned()));
    assert_eq!(paused(ledger).await, expected);
    let all = ledger.pauses().await.unwrap();
    assert!(all[0].since >= before && all[0].since < all[1].since);
    assert_eq!(
        (&all[0].by[..], &all[0].reason[..], all[0].due_before),
        ("me", "because", None)
    );

    assert_eq!(
        ledger.resume(&scope("Orders")).await.unwrap(),
        None,
        "names are exact"
    );
    let lifted = ledger.resume(&scope("Order")).await.unwrap();
    assert_eq!(lifted.as_ref(), Some(&all[0]));
    assert_eq!(ledger.resume(&scope("Order")).await.unwrap(), None);
    assert_eq!(paused(ledger).await, expected[1..]);
    ledger.resume(&Scope::EVERYTHING).await.unwrap().unwrap();
    ledger.resume(&scope("Order@close")).await.unwrap().unwrap();
    assert_eq!(paused(ledger).await, []);
}

async fn pausing_twice_changes_nothing_and_says_who_was_first(ledger: &impl Ledger) {
    let name = scope("Twice");
    let first = ledger.pause(&name, None, "one", "first").await.unwrap();
    assert!(!first.already);
    let long = "two".repeat(100);
    let second = ledger.pause(&name, None, &long, "second").await.unwrap();
    let PauseAnswer {
        pause,
        already,
        end_changed,
    } = second;
    assert!(already && !end_changed);
    assert_eq!(pause, first.pause);
    assert_eq!(paused(ledger).await.len(), 1);
    ledger.resume(&name).await.unwrap();
    assert_eq!(
        ledger
            .pause(&name, None, &long, "")
            .await
            .unwrap()
            .pause
            .by
            .len(),
        128
    );
    ledger.resume(&name).await.unwrap();
}

async fn a_pause_is_over_when_its_end_has_come(ledger: &impl Ledger) {
    let (name, other) = (scope("Ends"), scope("Stays"));
    let due = Due::after(Duration::from_millis(700)).unwrap();
    let before = ledger.sync_clock().await.unwrap();
    let answer = ledger.pause(&name, Some(due), "me", "").await.unwrap();
    let until = answer.pause.until.unwrap();
    assert!(!answer.already && until >= before.plus(Duration::from_millis(700)));
    ledger.pause(&other, None, "me", "").await.unwrap();
    let task = TaskKey::parse("Ends@go@1").unwrap();
    let all = ledger.pauses().await.unwrap();
    let found = all.iter().find(|pause| pause.scope == name);
    assert_eq!(found, Some(&answer.pause));
    let arming = create(ledger, &task, -1_000).await;
    assert!(Paused::of(&all).blocks(&task, arming.due).is_some());

    pass(ledger, until).await;
    let stays = [(PauseKind::Pause, "Stays".to_owned())];
    assert_eq!(paused(ledger).await, stays);
    assert_eq!(ledger.resume(&name).await.unwrap(), None, "it is over");
    // What has ended is not in the way of a new pause.
    let short = Due::after(Duration::from_millis(300)).unwrap();
    let answer = ledger.pause(&name, Some(short), "me", "").await.unwrap();
    pass(ledger, answer.pause.until.unwrap()).await;
    let again = ledger.pause(&name, None, "other", "again").await.unwrap();
    assert!(!again.already && again.pause.since >= answer.pause.until.unwrap());
    assert_eq!((again.pause.until, &again.pause.by[..]), (None, "other"));
    assert_eq!(paused(ledger).await.len(), 2);
    ledger.resume(&name).await.unwrap().unwrap();
    ledger.resume(&other).await.unwrap().unwrap();
}

async fn pausing_again_replaces_the_end_only(ledger: &impl Ledger) {
    let name = scope("Longer");
    let end = |hours: u64| Some(Due::after(Duration::from_secs(hours * 3_600)).unwrap());
    let first = ledger.pause(&name, end(1), "one", "first").await.unwrap();
    pass(ledger, first.pause.since).await;
    ledger.pause(&scope("Later"), None, "me", "").await.unwrap();
    let longer = ledger.pause(&name, end(2), "two", "").await.unwrap();
    assert!(longer.already && longer.end_changed);
    assert!(longer.pause.until > first.pause.until);
    let kept = lapsed::task::Pause {
        until: longer.pause.until,
        ..first.pause
    };
    assert_eq!(longer.pause, kept);
    assert_eq!(ledger.pauses().await.unwrap()[0], kept, "oldest first");
    let at = Some(Due::at(kept.until.unwrap()).unwrap());
    let same = ledger.pause(&name, at, "three", "").await.unwrap();
    assert!(same.already && !same.end_changed);
    let without = ledger.pause(&name, None, "three", "").await.unwrap();
    assert!(without.already && without.end_changed);
    assert_eq!(without.pause.until, None);
    assert_eq!(ledger.resume(&name).await.unwrap(), Some(without.pause));
    ledger.resume(&scope("Later")).await.unwrap().unwrap();
}

async fn an_end_that_is_not_ahead_is_refused(ledger: &impl Ledger) {
    let name = scope("Past");
    let past = Due::at(lapsed::task::UnixMs(1_000_000_000_000)).unwrap();
    for (end, says) in [
        (
            past,
            "the pause would end at 2001-09-09T01:46:40.000Z, expected a time after 20",
        ),
        (Due::NOW, ", which it is now on the ledger's clock"),
        (
            Due::at(lapsed::task::UnixMs(4_000_000_000_000)).unwrap(),
            "the pause would end at 2096-10-02T07:06:40.000Z, expected at most 10 years (3650 days) from now: leave the end out",
        ),
    ] {
        let refused = ledger.pause(&name, Some(end), "me", "").await;
        let error = refused.unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
    assert_eq!(paused(ledger).await, []);
}

async fn a_reason_that_is_too_long_is_refused(ledger: &impl Ledger) {
    let name = scope("Reason");
    let most = "ü".repeat(REASON_CHARS_MAX);
    let refused = ledger.pause(&name, None, "me", &format!("{most}!")).await;
    assert_eq!(
        refused.unwrap_err().to_string(),
        "reason has 256 characters, expected at most 255"
    );
    assert_eq!(paused(ledger).await, []);
    let kept = ledger.pause(&name, None, "me", &most).await.unwrap().pause;
    assert_eq!(kept.reason, most);
    ledger.resume(&name).await.unwrap();
}

async fn a_hold_covers_tasks_due_before_it_and_is_released_in_parts(ledger: &impl Ledger) {
    let name = scope("Order@close");
    let none = ledger.release(&name, "me").await.unwrap();
    assert_eq!(none, ReleaseAnswer::NoHold);
    let before = ledger.sync_clock().await.unwrap();
    pass(ledger, before).await;
    let first = ledger.hold_overdue("me", "restored").await.unwrap();
    let hold = first.pause.clone();
    assert!(!first.already && hold.due_before == Some(hold.since) && hold.since > before);
    pass(ledger, hold.since).await;
    let again = ledger.hold_overdue("other", "").await.unwrap();
    assert!(again.already);
    assert_eq!(again.pause, hold);

    let released = ledger.release(&name, "me").await.unwrap();
    assert_eq!(released, ReleaseAnswer::Released(hold.clone()));
    let again = ledger.release(&name, "me").await.unwrap();
    assert_eq!(again, ReleaseAnswer::Already(hold.clone()));
    let known = Paused::of(&ledger.pauses().await.unwrap());
    let task = TaskKey::parse("Order@close@1").unwrap();
    assert_eq!(known.held_before_of(&task), None);
    let task = TaskKey::parse("Order@closed@1").unwrap();
    assert_eq!(known.held_before_of(&task), hold.due_before);

    ledger.pause(&scope("Order"), None, "me", "").await.unwrap();
    let over = ledger.release(&Scope::EVERYTHING, "me").await.unwrap();
    assert_eq!(over, ReleaseAnswer::Released(hold));
    assert_eq!(
        paused(ledger).await,
        [(PauseKind::Pause, "Order".to_owned())],
        "a pause is no part of the hold"
    );
    ledger.resume(&scope("Order")).await.unwrap();
}

async fn a_release_does_not_affect_the_next_hold(ledger: &impl Ledger) {
    ledger.hold_overdue("me", "").await.unwrap();
    ledger.release(&scope("Order"), "me").await.unwrap();
    ledger.release(&Scope::EVERYTHING, "me").await.unwrap();
    ledger.hold_overdue("me", "").await.unwrap();
    assert_eq!(
        paused(ledger).await,
        [(PauseKind::Hold, "everything".to_owned())]
    );
    ledger.release(&Scope::EVERYTHING, "me").await.unwrap();
    let none = ledger.release(&Scope::EVERYTHING, "me").await.unwrap();
    assert_eq!(none, ReleaseAnswer::NoHold);
}

/// The arguments of what a scan around the pauses finds of class `Around`, `Arounds` or `Aside`, page by page.
async fn around(ledger: &impl Ledger, window: Window) -> Vec<String> {
    let paused = Paused::of(&ledger.pauses().await.unwrap());
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let scan = DueScan {
            window,
            after,
            limit: 2,
        };
        let page = ledger.scan_unpaused(scan, &paused).await.unwrap();
        let rows = page.rows.into_iter().map(|row| row.key);
        let rows = rows.filter(|key| key.class().starts_with('A'));
        found.extend(rows.map(|key| key.args().next().unwrap().to_owned()));
        after = page.next;
        if after.is_none() {
            return found;
        }
    }
}

async fn a_scan_goes_around_what_is_paused_and_held(ledger: &impl Ledger) {
    let (oldest, newest) = (
        Window::OverdueOldest(Duration::ZERO),
        Window::OverdueNewest(Duration::ZERO),
    );
    for (task, in_ms) in [
        ("Around@go@1", -9_000),
        ("Around@go@2", -8_000),
        ("Around@goes@3", -7_000),
        ("Arounds@go@4", -6_000),
        ("around@go@x", -5_500),
        ("Aside@go@5", -5_000),
        ("Around@go@6", -4_000),
        ("Aside@stop@7", -3_000),
    ] {
        create(ledger, &TaskKey::parse(task).unwrap(), in_ms).await;
    }
    assert_eq!(
        around(ledger, oldest).await,
        ["1", "2", "3", "4", "5", "6", "7"]
    );
    ledger
        .pause(&scope("Around@go"), None, "me", "")
        .await
        .unwrap();
    assert_eq!(around(ledger, oldest).await, ["3", "4", "5", "7"]);
    assert_eq!(around(ledger, newest).await, ["7", "5", "4", "3"]);
    ledger
        .pause(&scope("Around"), None, "me", "")
        .await
        .unwrap();
    assert_eq!(around(ledger, oldest).await, ["4", "5", "7"]);
    ledger
        .pause(&scope("Aside@go"), None, "me", "")
        .await
        .unwrap();
    assert_eq!(around(ledger, newest).await, ["7", "4"]);

    ledger.hold_overdue("me", "").await.unwrap();
    let none: [&str; 0] = [];
    assert_eq!(around(ledger, oldest).await, none);
    create(ledger, &TaskKey::parse("Aside@stop@8").unwrap(), 0).await;
    pass(ledger, ledger.sync_clock().await.unwrap()).await;
    assert_eq!(around(ledger, oldest).await, ["8"], "due after the hold");
    ledger.release(&scope("Aside"), "me").await.unwrap();
    assert_eq!(around(ledger, oldest).await, ["7", "8"]);
    ledger.release(&scope("Arounds@go"), "me").await.unwrap();
    assert_eq!(around(ledger, oldest).await, ["4", "7", "8"]);
    ledger
        .pause(&Scope::EVERYTHING, None, "me", "")
        .await
        .unwrap();
    assert_eq!(around(ledger, newest).await, none);

    for pause in ledger.pauses().await.unwrap() {
        ledger.resume(&pause.scope).await.unwrap();
    }
    ledger.release(&Scope::EVERYTHING, "me").await.unwrap();
    assert_eq!(paused(ledger).await, []);
    assert_eq!(around(ledger, oldest).await.len(), 8);
}

async fn run_now_lets_a_held_task_go(ledger: &impl Ledger) {
    let [held, released, later] =
        ["HeldNow@go", "FreeNow@go", "HeldNow@later"].map(|key| TaskKey::parse(key).unwrap());
    let old = create(ledger, &held, -5_000).await;
    let kept = create(ledger, &released, -5_000).await;
    let hold = ledger.hold_overdue("me", "").await.unwrap().pause;
    ledger.release(&scope("FreeNow"), "me").await.unwrap();
    create(ledger, &later, 60_000).await;
    let paused = Paused::of(&ledger.pauses().await.unwrap());
    assert!(paused.blocks(&held, old.due).is_some());

    let RunNowAnswer::Due(arming) = ledger.run_now(&held).await.unwrap() else {
        panic!("refused")
    };
    assert!(arming.due >= hold.due_before.unwrap());
    assert_eq!(paused.blocks(&held, arming.due), None);
    let answer = ledger.run_now(&released).await.unwrap();
    assert_eq!(answer, RunNowAnswer::Due(kept), "it was not held");
    let RunNowAnswer::Due(arming) = ledger.run_now(&later).await.unwrap() else {
        panic!("refused")
    };
    assert_eq!(paused.blocks(&later, arming.due), None);
    ledger.release(&Scope::EVERYTHING, "me").await.unwrap();
}

async fn pauses_are_limited_and_can_be_removed_at_the_limit(ledger: &impl Ledger) {
    let name = |number: usize| scope(&format!("Many{number}"));
    ledger.hold_overdue("me", "").await.unwrap();
    for number in 1..PAUSES_MAX {
        ledger.pause(&name(number), None, "me", "").await.unwrap();
    }
    let refused =
        "there are 1000 pauses, expected fewer than 1000: resume some, or pause whole classes";
    let more = ledger
        .pause(&name(PAUSES_MAX), None, "me", "")
        .await
        .unwrap_err();
    assert_eq!(more.to_string(), refused);
    let more = ledger.release(&name(1), "me").await.unwrap_err();
    assert_eq!(more.to_string(), refused);
    assert!(
        ledger
            .pause(&name(1), None, "me", "")
            .await
            .unwrap()
            .already
    );
    // However many are paused, a scan is one statement.
    let paused = Paused::of(&ledger.pauses().await.unwrap());
    let scan = DueScan {
        window: Window::OverdueNewest(Duration::ZERO),
        after: None,
        limit: 10,
    };
    ledger.scan_unpaused(scan, &paused).await.unwrap();
    ledger.release(&Scope::EVERYTHING, "me").await.unwrap();
    for number in 1..PAUSES_MAX {
        ledger.resume(&name(number)).await.unwrap().unwrap();
    }
    assert_eq!(ledger.pauses().await.unwrap(), []);
}
