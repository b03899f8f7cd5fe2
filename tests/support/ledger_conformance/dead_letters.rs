//! Finding, redriving and discarding what is dead.

use lapsed::ledger::{Ledger, ListFilter, NewTask, RunNowAnswer, Settled, StateFilter};
use lapsed::task::{Contents, Reason, State, TaskKey, UnixMs, Verdict, error_kind};

use crate::ledger_conformance::history::arming_of;
use crate::ledger_conformance::rig::{
    LEASE, bury_for, claim, claim_due, create, in_ms, pass, record, settle,
};

rules! {
    dead_tasks_are_found_by_what_is_known_of_them
    a_list_of_dead_tasks_begins_with_the_newest_if_asked
    redriven_rows_begin_anew_under_the_same_id
    only_dead_tasks_are_discarded
}

/// Dead tasks of a class of their own: `<reason> <number>`, with a tag and an error.
async fn dead(ledger: &impl Ledger, class: &str, count: usize) -> Vec<TaskKey> {
    let due = in_ms(ledger, -10).await;
    let mut keys = Vec::new();
    for n in 0..count {
        let reason = Reason::ALL[n % 2];
        let method = if n < 2 { "first" } else { "later" };
        let key = TaskKey::build(class, method, [n.to_string()]).unwrap();
        let task = NewTask {
            contents: Contents {
                tag: Some(format!("shop_{n}")),
                ..Contents::default()
            },
            ..NewTask::new(key.clone(), due)
        };
        let arming = ledger.create(&[task]).await.unwrap()[0].arming;
        let claimed = claim(ledger, arming, LEASE).await.unwrap();
        // What the engine and a target put before the message is no part of its kind.
        let prefix = match n % 3 {
            0 => "",
            1 => "permanent failure: ",
            _ => "gave up after 3 of 3 attempts: `sh` ended with exit status: 7: ",
        };
        let error = format!("{prefix}{n} SMTP 100%_{n} timed\nout");
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

async fn dead_tasks_are_found_by_what_is_known_of_them(ledger: &impl Ledger) {
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
    let questions: [(ListFilter, usize); 14] = [
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
                error_kind: Some(error_kind("7 SMTP 23%_9 timed")),
                ..all.clone()
            },
            5,
        ),
        (
            ListFilter {
                error_kind: Some("# SMTP #%_# timed out".into()),
                ..all.clone()
            },
            0,
        ),
        (
            ListFilter {
                error_kind: Some("# smtp #%_# timed".into()),
                ..all.clone()
            },
            0,
        ),
        (
            ListFilter {
                error_kind: Some("SMTP #%_# timed".into()),
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

async fn a_list_of_dead_tasks_begins_with_the_newest_if_asked(ledger: &impl Ledger) {
    let keys = dead(ledger, "Newest", 5).await;
    let list = async |filter: &ListFilter| {
        let (mut page, mut listed) = (filter.clone(), Vec::new());
        loop {
            let found = ledger.list(&page).await.unwrap();
            listed.extend(found.tasks.into_iter().map(|task| (task.due_at, task.id)));
            page.cursor = found.next;
            if page.cursor.is_none() {
                return listed;
            }
        }
    };
    let up = ListFilter {
        states: vec![
            StateFilter::Is(State::Dead),
            StateFilter::Is(State::Cancelled),
        ],
        class: Some("Newest".to_owned()),
        limit: 2,
        ..ListFilter::default()
    };
    let listed = list(&up).await;
    assert_eq!(listed.len(), keys.len());
    for (from, to) in [(0, 5), (1, 5), (0, 4), (2, 3)] {
        let within = ListFilter {
            due_after: Some(listed[from].0).filter(|_| from > 0),
            due_before: listed.get(to).map(|(due_at, _)| *due_at),
            ..up.clone()
        };
        let mut expected = list(&within).await;
        expected.reverse();
        let down = ListFilter {
            newest: true,
            ..within
        };
        assert_eq!(list(&down).await, expected, "{from} to {to}");
    }
}

async fn redriven_rows_begin_anew_under_the_same_id(ledger: &impl Ledger) {
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
    let claimed = claim(ledger, arming_of(ledger, &keys[0]).await, LEASE)
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
        RunNowAnswer::Refused(State::Running)
    );
}

async fn only_dead_tasks_are_discarded(ledger: &impl Ledger) {
    let keys = dead(ledger, "Discarded", 3).await;
    let rows = ledger.pick_dead(&of_class("Discarded")).await.unwrap().rows;
    assert_eq!(ledger.dead_keys(&rows).await.unwrap(), keys);
    ledger.redrive(&keys[0]).await.unwrap();
    assert_eq!(ledger.dead_keys(&rows).await.unwrap(), keys[1..]);
    let claimed = claim(ledger, arming_of(ledger, &keys[0]).await, LEASE)
        .await
        .unwrap();
    assert_eq!(ledger.discard_rows(&rows).await.unwrap(), 2);
    assert_eq!(ledger.discard_rows(&rows).await.unwrap(), 0);
    assert_eq!(
        settle(ledger, &claimed, Verdict::Complete).await,
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
