//! Histories, reasons, results; redriving, discarding and pruning.

use std::time::Duration;

use lapsed::ledger::{
    Catalog, Ledger, ListFilter, NewTask, NudgeAnswer, Prune, Pruned, Ruling, Settled, StateFilter,
    TaskRecord,
};
use lapsed::task::{HISTORY_MAX, How, Mishap, Reason, State, TaskKey, UnixMs};

use super::{
    LEASE, bury, bury_for, cancel, claim, claim_due, create, key, mishap, pass, retry_at, settle,
};

async fn record(ledger: &impl Catalog, key: &TaskKey) -> TaskRecord {
    ledger.find(key).await.unwrap().unwrap()
}

async fn fail(ledger: &(impl Ledger + Catalog), key: &TaskKey, entry: Mishap) {
    let arming = standing(ledger, key).await;
    let claimed = claim(ledger, arming, LEASE).await.unwrap();
    let at = UnixMs(1);
    let ruling = match entry.how {
        How::Snoozed => Ruling::Snooze { at, mishap: entry },
        _ => Ruling::RetryAt {
            at,
            error: entry.error.clone(),
            mishap: entry,
        },
    };
    assert_eq!(settle(ledger, &claimed, ruling).await, Settled::Applied);
}

async fn standing(ledger: &impl Ledger, key: &TaskKey) -> lapsed::ledger::Arming {
    let standings = ledger.look_up(std::slice::from_ref(key)).await.unwrap();
    standings[0].as_ref().unwrap().arming
}

fn attempts(record: &TaskRecord) -> Vec<u16> {
    record.history.iter().map(|entry| entry.attempt).collect()
}

pub async fn what_failed_is_in_the_history_until_the_task_is_armed_anew(
    ledger: &(impl Ledger + Catalog),
) {
    let key = key("history", 1);
    create(ledger, &key, -10).await;
    let first = Mishap {
        error: "line 1\n\"line\" 2 é \u{1f600} \\".into(),
        crashes: 2,
        ..mishap(How::TimedOut, 1, "")
    };
    fail(ledger, &key, first.clone()).await;
    fail(ledger, &key, mishap(How::Panicked, 2, "boom")).await;
    let found = record(ledger, &key).await;
    assert_eq!(found.history, [mishap(How::Panicked, 2, "boom"), first]);
    assert_eq!(found.last_error.as_deref(), Some("boom"));

    let arming = standing(ledger, &key).await;
    let claimed = claim(ledger, arming, LEASE).await.unwrap();
    settle(ledger, &claimed, bury()).await;
    assert_eq!(attempts(&record(ledger, &key).await), [1, 2, 1]);
    ledger.redrive(&key).await.unwrap();
    let redriven = record(ledger, &key).await;
    assert_eq!(attempts(&redriven), [1, 2, 1], "it survives a redrive");
    let claimed = claim(ledger, arming, LEASE).await.unwrap();
    settle(ledger, &claimed, Ruling::Complete).await;
    assert_eq!(
        attempts(&record(ledger, &key).await),
        [1, 2, 1],
        "and success"
    );

    create(ledger, &key, -20).await;
    let anew = record(ledger, &key).await;
    assert_eq!((anew.history.len(), anew.reason), (0, None));
    fail(ledger, &key, mishap(How::Failed, 1, "no")).await;
    let due = UnixMs(ledger.sync_clock().await.unwrap().0 + 60_000);
    ledger.reschedule(&key, due).await.unwrap();
    let moved = record(ledger, &key).await;
    assert_eq!((moved.history.len(), moved.last_error), (0, None));
}

pub async fn a_history_has_room_for_the_newest(ledger: &(impl Ledger + Catalog)) {
    let key = key("history", "long");
    create(ledger, &key, -10).await;
    for attempt in 1..=HISTORY_MAX as u16 + 3 {
        let error = "x".repeat(3_000);
        fail(ledger, &key, mishap(How::Failed, attempt, &error)).await;
    }
    let found = record(ledger, &key).await;
    let expected: Vec<u16> = (4..=13).rev().collect();
    assert_eq!(attempts(&found), expected);
    assert!(found.history.iter().all(|entry| entry.error.len() == 500));
    assert_eq!(found.last_error.unwrap().len(), 2048);
}

pub async fn a_snooze_gives_its_attempt_back_and_is_counted_in_a_row(
    ledger: &(impl Ledger + Catalog),
) {
    let key = key("snooze", 1);
    let arming = create(ledger, &key, -10).await;
    let snooze = |snoozes| Mishap {
        snoozes,
        ..mishap(How::Snoozed, 1, "")
    };
    for snoozes in 0..3 {
        let claimed = claim(ledger, arming, LEASE).await.unwrap();
        assert_eq!(claimed.attempt.number, 1);
        assert_eq!(claimed.attempt.snoozes, snoozes);
        let ruling = Ruling::Snooze {
            at: UnixMs(1),
            mishap: snooze(snoozes + 1),
        };
        for _ in 0..2 {
            let settled = settle(ledger, &claimed, ruling.clone()).await;
            assert_eq!(settled, Settled::Applied);
        }
    }
    let snoozed = record(ledger, &key).await;
    assert_eq!((snoozed.attempt, snoozed.last_error), (0, None));
    assert_eq!(snoozed.history, [snooze(3)], "one entry for all");

    fail(ledger, &key, mishap(How::Failed, 1, "no")).await;
    let claimed = claim(ledger, arming, LEASE).await.unwrap();
    assert_eq!((claimed.attempt.number, claimed.attempt.snoozes), (2, 0));
    let ruling = Ruling::Snooze {
        at: UnixMs(1),
        mishap: snooze(1),
    };
    settle(ledger, &claimed, ruling.clone()).await;
    let claimed = claim(ledger, arming, LEASE).await.unwrap();
    assert_eq!(claimed.attempt.snoozes, 1, "another row of them");
    settle(ledger, &claimed, ruling).await;
    let found = record(ledger, &key).await;
    let hows: Vec<How> = found.history.iter().map(|entry| entry.how).collect();
    assert_eq!(hows, [How::Snoozed, How::Failed, How::Snoozed]);
    assert_eq!(found.last_error.as_deref(), Some("no"), "it stays");
    let claimed = claim(ledger, arming, LEASE).await.unwrap();
    assert_eq!(
        cancel(ledger, &key).await,
        lapsed::ledger::CancelAnswer::Running
    );
    let ruling = Ruling::Snooze {
        at: UnixMs(1),
        mishap: snooze(2),
    };
    assert_eq!(settle(ledger, &claimed, ruling).await, Settled::Cancelled);
}

pub async fn a_dead_task_says_why_in_a_word(ledger: &(impl Ledger + Catalog)) {
    for reason in Reason::ALL {
        let key = key("reason", reason);
        let claimed = claim_due(ledger, &key, LEASE).await;
        settle(ledger, &claimed, bury_for(reason, "broken")).await;
        let dead = record(ledger, &key).await;
        assert_eq!((dead.state, dead.reason), (State::Dead, Some(reason)));
        // What expired has not run.
        let ran = u16::from(reason != Reason::Expired);
        assert_eq!(dead.attempt, ran, "{reason}");
        ledger.redrive(&key).await.unwrap();
        assert_eq!(record(ledger, &key).await.reason, None);
    }
    let key = key("reason", "cancelled");
    let claimed = claim_due(ledger, &key, LEASE).await;
    cancel(ledger, &key).await;
    assert_eq!(settle(ledger, &claimed, bury()).await, Settled::Cancelled);
    let cancelled = record(ledger, &key).await;
    assert_eq!(cancelled.reason, None, "it is not dead");
}

pub async fn a_result_is_kept_with_the_completion(ledger: &(impl Ledger + Catalog)) {
    let result = r#"{"é":[1,"\n"]}"#;
    let (with, without) = (key("result", 1), key("result", 2));
    let kept = claim_due(ledger, &with, LEASE).await;
    let plain = claim_due(ledger, &without, LEASE).await;
    let rulings = [
        (kept.lease, Ruling::CompleteWith(result.into())),
        (plain.lease, Ruling::Complete),
    ];
    let settlements = rulings.map(|(lease, ruling)| lapsed::ledger::Settlement { lease, ruling });
    for _ in 0..2 {
        let settled = ledger.settle(&settlements).await.unwrap();
        assert_eq!(settled, [Settled::Applied; 2]);
    }
    let done = record(ledger, &with).await;
    assert_eq!(
        (done.state, done.result.as_deref()),
        (State::Done, Some(result))
    );
    assert_eq!(record(ledger, &without).await.result, None);
    create(ledger, &with, -20).await;
    assert_eq!(
        record(ledger, &with).await.result,
        None,
        "it was the older arming's"
    );

    let key = key("result", "fenced");
    let older = claim_due(ledger, &key, LEASE).await;
    create(ledger, &key, 60_000).await;
    let ruling = Ruling::CompleteWith(result.into());
    assert_eq!(settle(ledger, &older, ruling).await, Settled::Superseded);
    assert_eq!(record(ledger, &key).await.result, None);
}

/// Dead tasks of a class of their own: `<reason> <number>`, with a tag and an error.
async fn dead(ledger: &(impl Ledger + Catalog), class: &str, count: usize) -> Vec<TaskKey> {
    let due = UnixMs(ledger.sync_clock().await.unwrap().0 - 10);
    let mut keys = Vec::new();
    for n in 0..count {
        let reason = Reason::ALL[n % 2];
        let method = if n < 2 { "first" } else { "later" };
        let key = TaskKey::build(class, method, [n.to_string()]).unwrap();
        let task = NewTask {
            tag: Some(format!("shop_{n}")),
            ..NewTask::new(key.clone(), due)
        };
        let arming = ledger.create(&[task]).await.unwrap()[0].arming;
        let claimed = claim(ledger, arming, LEASE).await.unwrap();
        let error = format!("{n} SMTP 100%_{n} timed\nout");
        settle(ledger, &claimed, bury_for(reason, &error)).await;
        keys.push(key);
    }
    keys
}

fn of_class(class: &str) -> ListFilter {
    ListFilter {
        class: Some(class.into()),
        limit: 100,
        ..ListFilter::default()
    }
}

pub async fn dead_tasks_are_found_by_what_is_known_of_them(ledger: &(impl Ledger + Catalog)) {
    dead(ledger, "Found", 5).await;
    // Neither is dead, whatever else fits.
    create(
        ledger,
        &TaskKey::build("Found", "later", ["x"]).unwrap(),
        -5,
    )
    .await;
    claim_due(
        ledger,
        &TaskKey::build("Found", "later", ["y"]).unwrap(),
        LEASE,
    )
    .await;
    let all = of_class("Found");
    let now = ledger.sync_clock().await.unwrap();
    let ahead = UnixMs(now.0 + 60_000);
    let questions: [(ListFilter, usize); 10] = [
        (all.clone(), 5),
        (
            ListFilter {
                method: Some("first".into()),
                ..all.clone()
            },
            2,
        ),
        (
            ListFilter {
                tag: Some("shop_3".into()),
                ..all.clone()
            },
            1,
        ),
        (
            ListFilter {
                reason: Some(Reason::Exhausted),
                ..all.clone()
            },
            2,
        ),
        (
            ListFilter {
                reason: Some(Reason::Poison),
                ..all.clone()
            },
            0,
        ),
        (
            ListFilter {
                error: Some("smtp 100%_4".into()),
                ..all.clone()
            },
            1,
        ),
        (
            ListFilter {
                error: Some("smtp%timed".into()),
                ..all.clone()
            },
            0,
        ),
        (
            ListFilter {
                finished_before: Some(ahead),
                ..all.clone()
            },
            5,
        ),
        (
            ListFilter {
                finished_after: Some(ahead),
                ..all.clone()
            },
            0,
        ),
        (
            ListFilter {
                finished_before: Some(UnixMs(1)),
                ..all.clone()
            },
            0,
        ),
    ];
    for (filter, count) in questions {
        let picked = ledger.pick_dead(&filter).await.unwrap();
        assert_eq!(
            (picked.rows.len(), picked.next),
            (count, None),
            "{filter:?}"
        );
        let dead_only = ListFilter {
            states: vec![StateFilter::Is(State::Dead)],
            ..filter
        };
        let listed = ledger.list(&dead_only).await.unwrap();
        assert_eq!(listed.tasks.len(), count, "{dead_only:?}");
    }
    let mut page = ListFilter { limit: 2, ..all };
    let mut pages = Vec::new();
    loop {
        let picked = ledger.pick_dead(&page).await.unwrap();
        pages.extend(picked.rows);
        page.cursor = picked.next;
        if page.cursor.is_none() {
            break;
        }
    }
    assert_eq!(pages.len(), 5);
    assert!(pages.is_sorted());
}

pub async fn redriven_rows_begin_anew_under_the_same_id(ledger: &(impl Ledger + Catalog)) {
    let keys = dead(ledger, "Redriven", 3).await;
    let before = record(ledger, &keys[0]).await;
    pass(ledger, UnixMs(before.created.0 + 5)).await;
    let mut rows = ledger.pick_dead(&of_class("Redriven")).await.unwrap().rows;
    rows.push(u64::MAX >> 1);
    assert_eq!(ledger.redrive_rows(&rows[..2]).await.unwrap(), 2);
    assert_eq!(
        ledger.redrive_rows(&rows).await.unwrap(),
        1,
        "those that are dead"
    );
    let after = record(ledger, &keys[0]).await;
    assert_eq!((after.state, after.id), (State::Pending, before.id));
    assert_eq!(
        (after.attempt, after.reason, after.finished),
        (0, None, None)
    );
    assert_eq!(after.history, before.history);
    let claimed = claim(ledger, standing(ledger, &keys[0]).await, LEASE)
        .await
        .unwrap();
    assert_eq!(claimed.attempt.number, 1);
    assert!(
        claimed.attempt.since > before.created,
        "counted from the redrive"
    );
    assert_eq!(claimed.attempt.since, after.created);
    assert_eq!(
        ledger.redrive(&keys[0]).await.unwrap(),
        NudgeAnswer::Refused(State::Running)
    );
}

pub async fn only_dead_tasks_are_discarded(ledger: &(impl Ledger + Catalog)) {
    let keys = dead(ledger, "Discarded", 3).await;
    let rows = ledger.pick_dead(&of_class("Discarded")).await.unwrap().rows;
    ledger.redrive(&keys[0]).await.unwrap();
    let claimed = claim(ledger, standing(ledger, &keys[0]).await, LEASE)
        .await
        .unwrap();
    assert_eq!(ledger.discard_rows(&rows).await.unwrap(), 2);
    assert_eq!(ledger.discard_rows(&rows).await.unwrap(), 0);
    assert_eq!(
        settle(ledger, &claimed, Ruling::Complete).await,
        Settled::Applied
    );
    assert_eq!(
        ledger.discard_rows(&rows).await.unwrap(),
        0,
        "done is not dead"
    );
    assert!(ledger.find(&keys[0]).await.unwrap().is_some());
    assert!(ledger.find(&keys[1]).await.unwrap().is_none());
    // The key is free again, and its row another one.
    let old = rows[1];
    let arming = create(ledger, &keys[1], -10).await;
    assert_ne!(arming.row, old);
    assert!(claim(ledger, arming, LEASE).await.is_some());
}

pub async fn prune_all(ledger: &impl Catalog, mut prune: Prune) -> Pruned {
    let mut total = Pruned::default();
    loop {
        let pruned = ledger.prune(&prune).await.unwrap();
        total.rows += pruned.rows;
        total.surplus += pruned.surplus;
        prune.surplus -= pruned.surplus;
        prune.after = pruned.next;
        if prune.after.is_none() {
            return total;
        }
    }
}

pub async fn pruning_forgets_what_is_finished_and_old_enough_and_nothing_else(
    ledger: &(impl Ledger + Catalog),
) {
    let key = |arg: &str| key("prune", arg);
    // Pending, waiting, running: all of them long overdue.
    create(ledger, &key("pending"), -5_000).await;
    let waiting = claim_due(ledger, &key("waiting"), LEASE).await;
    settle(ledger, &waiting, retry_at(UnixMs(9_000_000_000_000))).await;
    let _running = claim_due(ledger, &key("running"), LEASE).await;
    // Called off ahead of its time: its key may be armed yet.
    create(ledger, &key("ahead"), 60_000).await;
    cancel(ledger, &key("ahead")).await;
    create(ledger, &key("cancelled"), -10).await;
    cancel(ledger, &key("cancelled")).await;
    for n in 0..5 {
        let done = claim_due(ledger, &key(&format!("done{n}")), LEASE).await;
        settle(ledger, &done, Ruling::Complete).await;
    }
    let dead = claim_due(ledger, &key("dead"), LEASE).await;
    settle(ledger, &dead, bury()).await;

    let finished = record(ledger, &key("dead")).await.finished.unwrap();
    let prune = |state, age_ms| Prune {
        state,
        age: Some(Duration::from_millis(age_ms)),
        surplus: 0,
        after: None,
        limit: 2,
        dry_run: false,
    };
    let before = prune_all(ledger, prune(State::Done, 3_600_000)).await;
    assert_eq!(before.rows, 0, "nothing is so old");
    pass(ledger, UnixMs(finished.0 + 60)).await;
    let unlimited = Prune {
        age: None,
        ..prune(State::Done, 0)
    };
    assert_eq!(prune_all(ledger, unlimited).await.rows, 0);
    let too_young = Prune {
        surplus: 2,
        ..unlimited
    };
    assert_eq!(
        prune_all(ledger, too_young).await.rows,
        0,
        "not even surplus"
    );

    let dry = Prune {
        dry_run: true,
        ..prune(State::Done, 50)
    };
    let counted = prune_all(ledger, dry).await.rows;
    assert!(counted >= 5, "{counted}");
    assert!(ledger.find(&key("done0")).await.unwrap().is_some());
    assert_eq!(
        prune_all(ledger, prune(State::Done, 50)).await.rows,
        counted
    );
    assert_eq!(ledger.count_finished(State::Done).await.unwrap(), 0);
    assert!(ledger.find(&key("done0")).await.unwrap().is_none());
    for state in State::ALL {
        prune_all(ledger, prune(state, 50)).await;
        prune_all(
            ledger,
            Prune {
                surplus: 1_000,
                ..prune(state, 0)
            },
        )
        .await;
    }
    for gone in ["dead", "cancelled"] {
        assert!(ledger.find(&key(gone)).await.unwrap().is_none(), "{gone}");
    }
    let states = [
        ("pending", State::Pending),
        ("waiting", State::Waiting),
        ("running", State::Running),
        ("ahead", State::Cancelled),
    ];
    for (kept, state) in states {
        let found = ledger.find(&key(kept)).await.unwrap();
        assert_eq!(found.map(|found| found.state), Some(state), "{kept}");
    }
}
