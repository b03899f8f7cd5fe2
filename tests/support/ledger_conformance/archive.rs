//! Finished tasks that are kept beside the ledger.

use std::time::Duration;

use lapsed::ledger::{
    Admin, Ledger, LedgerError, ListFilter, NewTask, Prune, StateFilter, TaskRecord,
};
use lapsed::task::{Contents, State, TaskKey, UnixMs, Verdict};

use crate::ledger_conformance::rig::{
    LEASE, bury, cancel, claim, claim_due, create, in_ms, key, pass, record, settle,
};
use crate::ledger_conformance::series::{hourly, series};

rules! {
    a_finished_task_moves_to_the_archive_as_it_was
    rows_that_are_found_first_are_archived_if_they_are_still_old_enough
    each_archived_task_of_a_key_is_kept_and_the_latest_is_shown
    the_archive_is_listed_page_by_page_in_each_order
    archived_tasks_cannot_be_changed
    the_row_of_a_series_that_a_configuration_wants_is_not_archived
}

/// Selects archived tasks of a rule.
fn archived(rule: &str) -> ListFilter {
    ListFilter {
        archived: true,
        limit: 100,
        ..ListFilter::class("Conformance").method(rule)
    }
}

fn archiving(state: State) -> Prune {
    Prune {
        state,
        age: Some(Duration::from_millis(1)),
        surplus: None,
        after: None,
        limit: 100,
        archive: true,
        dry_run: false,
    }
}

/// Archives everything that has finished. Returns the number of tasks.
async fn archive_all(ledger: &impl Ledger) -> u64 {
    let now = in_ms(ledger, 5).await;
    pass(ledger, now).await;
    let mut rows = 0;
    for state in [State::Done, State::Dead, State::Cancelled] {
        let mut prune = archiving(state);
        loop {
            let pruned = ledger.prune(&prune).await.unwrap();
            rows += pruned.rows;
            prune.after = pruned.next;
            if prune.after.is_none() {
                break;
            }
        }
    }
    rows
}

async fn keys(ledger: &impl Admin, filter: &ListFilter) -> Vec<String> {
    let page = ledger.list(filter).await.unwrap();
    assert!(page.tasks.iter().all(|task| task.archived), "{page:?}");
    page.tasks.iter().map(|task| task.key.to_string()).collect()
}

async fn a_finished_task_moves_to_the_archive_as_it_was(ledger: &impl Ledger) {
    const RULE: &str = "archived";
    let key = |arg: &str| key(RULE, arg);
    let due = in_ms(ledger, -10).await;
    let task = NewTask {
        contents: Contents {
            payload: Some("{\"a\":1}".into()),
            tag: Some("archived_tag".into()),
            max_attempts: Some(3),
        },
        ..NewTask::new(key("done"), due)
    };
    let created = ledger.create(&[task]).await.unwrap();
    let done = claim(ledger, created[0].arming, LEASE).await.unwrap();
    settle(ledger, &done, Verdict::Complete).await;
    let dead = claim_due(ledger, &key("dead"), LEASE).await;
    settle(ledger, &dead, bury()).await;
    create(ledger, &key("cancelled"), -10).await;
    cancel(ledger, &key("cancelled")).await;
    create(ledger, &key("pending"), -10).await;

    let ended = ["done", "dead", "cancelled"];
    let mut before = Vec::new();
    for arg in ended {
        before.push(record(ledger, &key(arg)).await);
        assert_eq!(ledger.find_archived(&key(arg)).await.unwrap(), None);
    }
    archive_all(ledger).await;
    for (arg, before) in ended.into_iter().zip(before) {
        assert_eq!(ledger.find(&key(arg)).await.unwrap(), None, "{arg}");
        let expected = TaskRecord {
            archived: true,
            ..before
        };
        assert_eq!(
            ledger.find_archived(&key(arg)).await.unwrap(),
            Some(expected)
        );
    }
    assert!(ledger.find(&key("pending")).await.unwrap().is_some());
    assert_eq!(ledger.find_archived(&key("pending")).await.unwrap(), None);
    assert_eq!(keys(ledger, &archived(RULE)).await.len(), 3);
    // Nothing is that old.
    let hour = Some(Duration::from_secs(3_600));
    for keep in [None, hour] {
        let done = ledger.maintain_archive(keep).await.unwrap();
        assert_eq!((done.rows, done.dropped.len()), (0, 0));
    }
    assert_eq!(keys(ledger, &archived(RULE)).await.len(), 3);
}

async fn rows_that_are_found_first_are_archived_if_they_are_still_old_enough(ledger: &impl Ledger) {
    const RULE: &str = "archive_found";
    for arg in ["a", "b"] {
        let done = claim_due(ledger, &key(RULE, arg), LEASE).await;
        settle(ledger, &done, Verdict::Complete).await;
    }
    let now = in_ms(ledger, 5).await;
    pass(ledger, now).await;
    let dry_run = Prune {
        dry_run: true,
        ..archiving(State::Done)
    };
    let found = ledger.prune(&dry_run).await.unwrap().found;
    let of_rule = |arg| {
        let wanted = Some(key(RULE, arg));
        let row = found.iter().find(|(_, key)| *key == wanted);
        row.expect("it has finished").0
    };
    let (a, b) = (of_rule("a"), of_rule("b"));
    // It is created again before it is archived.
    create(ledger, &key(RULE, "b"), 60_000).await;
    let rows = ledger.prune_rows(&archiving(State::Done), &[a, b]).await;
    assert_eq!(rows.unwrap(), 1);
    assert_eq!(ledger.find(&key(RULE, "a")).await.unwrap(), None);
    assert!(
        ledger
            .find_archived(&key(RULE, "a"))
            .await
            .unwrap()
            .is_some()
    );
    assert_eq!(record(ledger, &key(RULE, "b")).await.state, State::Pending);
    assert_eq!(ledger.find_archived(&key(RULE, "b")).await.unwrap(), None);
    // The answer to the first request was lost.
    let again = ledger.prune_rows(&archiving(State::Done), &[a, b]).await;
    assert_eq!(again.unwrap(), 0);
    assert_eq!(keys(ledger, &archived(RULE)).await.len(), 1);
}

async fn each_archived_task_of_a_key_is_kept_and_the_latest_is_shown(ledger: &impl Ledger) {
    const RULE: &str = "archive_again";
    let key = key(RULE, "1");
    let mut ids = Vec::new();
    for _ in 0..3 {
        let done = claim_due(ledger, &key, LEASE).await;
        settle(ledger, &done, Verdict::Complete).await;
        ids.push(record(ledger, &key).await.id);
        archive_all(ledger).await;
    }
    let latest = ledger.find_archived(&key).await.unwrap().unwrap();
    assert_eq!(latest.id, ids[2]);
    // A page may end between two tasks of a key.
    let filter = ListFilter {
        archived: true,
        ..ListFilter::prefix(key.as_str())
    };
    let listed = pages(ledger, &filter).await;
    let listed: Vec<String> = listed.into_iter().map(|task| task.id).collect();
    assert_eq!(listed, ids);
}

async fn the_archive_is_listed_page_by_page_in_each_order(ledger: &impl Ledger) {
    const RULE: &str = "archive_listed";
    let class = |class: &str, n: i64| TaskKey::build(class, RULE, [n.to_string()]).unwrap();
    let due = in_ms(ledger, -10_000).await;
    for n in 0..6 {
        let of = if n < 3 { "ArchiveA" } else { "ArchiveB" };
        let task = NewTask {
            contents: Contents {
                tag: Some("archive_listed".to_owned()).filter(|_| n % 2 == 0),
                ..Contents::default()
            },
            ..NewTask::new(class(of, n), UnixMs(due.0 + n))
        };
        let created = ledger.create(&[task]).await.unwrap();
        let claim = claim(ledger, created[0].arming, LEASE).await.unwrap();
        let verdict = if n == 4 { bury() } else { Verdict::Complete };
        settle(ledger, &claim, verdict).await;
    }
    archive_all(ledger).await;
    let all = ListFilter {
        archived: true,
        method: Some(RULE.to_owned()),
        ..ListFilter::default()
    };
    let states = |state| ListFilter {
        states: vec![StateFilter::Is(state)],
        ..all.clone()
    };
    let cases = [
        (
            ListFilter {
                class: Some("ArchiveA".to_owned()),
                ..all.clone()
            },
            vec![0, 1, 2],
        ),
        (
            ListFilter {
                tag: Some("archive_listed".to_owned()),
                ..all.clone()
            },
            vec![0, 2, 4],
        ),
        (states(State::Done), vec![0, 1, 2, 3, 5]),
        (states(State::Dead), vec![4]),
        (
            ListFilter {
                newest: true,
                ..states(State::Done)
            },
            vec![5, 3, 2, 1, 0],
        ),
        (
            ListFilter {
                due_after: Some(UnixMs(due.0 + 2)),
                due_before: Some(UnixMs(due.0 + 4)),
                ..all.clone()
            },
            vec![2, 3],
        ),
        (
            ListFilter {
                error: Some("FOR GOOD".to_owned()),
                ..all.clone()
            },
            vec![4],
        ),
        (
            ListFilter {
                recurring: true,
                ..all.clone()
            },
            vec![],
        ),
    ];
    for (filter, expected) in cases {
        let listed = pages(ledger, &filter).await;
        let listed: Vec<i64> = listed
            .iter()
            .map(|task| task.key.args().next().unwrap().parse().unwrap())
            .collect();
        assert_eq!(listed, expected, "{filter:?}");
        let live = ListFilter {
            archived: false,
            ..filter
        };
        assert!(pages(ledger, &live).await.is_empty());
    }
    // By id: other rules have archived tasks, too.
    let by_id = ListFilter {
        archived: true,
        ..ListFilter::default()
    };
    let of_rule = |task: &TaskRecord| task.key.method() == RULE;
    let listed = pages(ledger, &by_id).await;
    assert_eq!(listed.into_iter().filter(of_rule).count(), 6);
}

/// Lists tasks one by one.
async fn pages(ledger: &impl Admin, filter: &ListFilter) -> Vec<TaskRecord> {
    let mut filter = ListFilter {
        limit: 1,
        ..filter.clone()
    };
    let mut tasks = Vec::new();
    loop {
        let page = ledger.list(&filter).await.unwrap();
        tasks.extend(page.tasks);
        let Some(next) = page.next else {
            return tasks;
        };
        // As it is read back from the command line.
        filter.cursor = Some(next.to_string().parse().unwrap());
    }
}

async fn archived_tasks_cannot_be_changed(ledger: &impl Ledger) {
    const RULE: &str = "archive_read_only";
    let dead = claim_due(ledger, &key(RULE, "1"), LEASE).await;
    settle(ledger, &dead, bury()).await;
    archive_all(ledger).await;
    let refused = |error| matches!(error, LedgerError::Invalid(_));
    assert!(refused(
        ledger.pick_dead(&archived(RULE)).await.unwrap_err()
    ));
    let cancel = ledger.cancel_page(&archived(RULE), false).await;
    assert!(refused(cancel.unwrap_err()));
    assert_eq!(keys(ledger, &archived(RULE)).await.len(), 1);
    // The key is free.
    create(ledger, &key(RULE, "1"), 60_000).await;
    assert_eq!(record(ledger, &key(RULE, "1")).await.state, State::Pending);
    assert_eq!(keys(ledger, &archived(RULE)).await.len(), 1);
}

async fn the_row_of_a_series_that_a_configuration_wants_is_not_archived(ledger: &impl Ledger) {
    const RULE: &str = "archive_series";
    for wanted in [false, true] {
        let key = key(RULE, wanted);
        let arming = hourly(ledger, &key).await;
        let claimed = claim(ledger, arming, LEASE).await.unwrap();
        settle(ledger, &claimed, Verdict::Complete).await;
        if wanted {
            let seen = series(ledger, &key).await;
            assert!(ledger.mark_configured(&seen).await.unwrap());
        }
        let rows = [arming.row];
        archive_all(ledger).await;
        let moved = ledger.prune_rows(&archiving(State::Done), &rows).await;
        assert_eq!(moved.unwrap(), 0, "it has been archived, or stays");
        let there = ledger.find(&key).await.unwrap().is_some();
        let archived = ledger.find_archived(&key).await.unwrap().is_some();
        assert_eq!((there, archived), (wanted, !wanted));
    }
}
