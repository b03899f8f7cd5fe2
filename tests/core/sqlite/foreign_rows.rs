//! Rows of other programs that are no tasks.

use lapsed::ledger::transfer::{Rows, Transfers as _};
use lapsed::ledger::{
    Admin as _, Adoption as _, DetailedStatsLimits, DueScan, Ledger, ListFilter, Producer as _,
    Retention as _, Scans as _, StateFilter, Window,
};
use lapsed::task::{Arming, ClassGlob, State, UnixMs, Verdict};

use crate::ledger_conformance::rig::{LEASE, bury, claim, create_at, retry_at, settle};
use crate::sqlite::Place;
use crate::sqlite::faults::task;

/// A program may write what is no task. It is shown and counted apart, is found by the beginning of its key alone, and can be
/// cancelled and pruned.
#[tokio::test]
async fn rows_whose_key_is_no_task_key_are_found_by_their_beginning_only() {
    let (place, ledger) = Place::migrated().await;
    ledger.create(&[task("1")]).await.unwrap();
    let insert = "INSERT INTO tb_time_limit_task (key, start_time, end_time) VALUES \
         ('not a key', 1000, 2000), ('Order@close@x ', 1000, 3000)";
    place.application().execute_batch(insert).unwrap();
    let found = async |filter: ListFilter| {
        let filter = ListFilter {
            limit: 10,
            ..filter
        };
        let page = ledger.list(&filter).await.unwrap();
        let tasks = page.tasks.iter().map(|task| task.key.to_string());
        let malformed = page.malformed.iter().map(|row| row.key.clone());
        (tasks.collect::<Vec<_>>(), malformed.collect::<Vec<_>>())
    };
    let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
    let all = ListFilter::default();
    let own = task("1").key.to_string();
    let foreign = ["not a key", "Order@close@x "];
    assert_eq!(found(all.clone()).await, (names(&[&own]), names(&foreign)));
    let cases = [
        (ListFilter::prefix("not"), &foreign[..1]),
        (ListFilter::prefix("Order@close@x "), &foreign[1..]),
        (ListFilter::prefix("Order@open"), &[]),
        (
            ListFilter {
                class: Some("Order".into()),
                ..all.clone()
            },
            &[],
        ),
        (
            ListFilter {
                method: Some("close".into()),
                ..all.clone()
            },
            &[],
        ),
        (
            ListFilter {
                only: vec![ClassGlob::parse("*").unwrap()],
                ..all.clone()
            },
            &[],
        ),
        (
            ListFilter {
                except: vec![ClassGlob::parse("*").unwrap()],
                ..all.clone()
            },
            &foreign[..],
        ),
        (
            ListFilter {
                states: vec![StateFilter::Overdue],
                ..ListFilter::prefix("Order@")
            },
            &foreign[1..],
        ),
        (
            ListFilter {
                states: vec![StateFilter::Overdue],
                ..all.clone()
            },
            &foreign[..],
        ),
        (
            ListFilter {
                states: vec![StateFilter::Is(State::Done)],
                ..all.clone()
            },
            &[],
        ),
    ];
    for (filter, expected) in cases {
        assert_eq!(found(filter.clone()).await.1, names(expected), "{filter:?}");
    }
    let counts = ledger.stats().await.unwrap();
    assert_eq!((counts.pending, counts.malformed), (1, 2));
    let page = ledger.cancel_page(&ListFilter::prefix("not"), false).await;
    let page = page.unwrap();
    assert_eq!((page.cancelled.len(), page.malformed), (0, 1));
    assert_eq!(ledger.stats().await.unwrap().malformed, 1);
    let ahead = "INSERT INTO tb_time_limit_task (key, start_time, end_time) VALUES \
         ('not due', 1000, 3999999999999)";
    place.application().execute_batch(ahead).unwrap();
    assert_eq!(ledger.stats().await.unwrap().malformed, 1);
}

/// They may be many.
#[tokio::test]
async fn overdue_rows_whose_key_is_no_task_key_are_counted_up_to_ten_thousand() {
    let (place, ledger) = Place::migrated().await;
    for (first, last, is_part) in [(1, 10_000, false), (10_001, 10_001, true)] {
        let insert = format!(
            "WITH RECURSIVE n (n) AS (SELECT {first} UNION ALL SELECT n + 1 FROM n WHERE n < {last}) \
             INSERT INTO tb_time_limit_task (key, start_time, end_time) \
             SELECT 'not a key ' || n, 1000, 1000 + n FROM n"
        );
        place.application().execute_batch(&insert).unwrap();
        let limits = DetailedStatsLimits::default();
        let found = ledger.detailed_stats(limits).await.unwrap();
        assert_eq!(found.counts.malformed, 10_000);
        assert_eq!(found.at_least.contains(&"malformed"), is_part);
    }
}

/// They are never signalled, and a move leaves them where they are.
#[tokio::test]
async fn rows_whose_key_is_no_task_key_are_counted_by_scans_and_moves() {
    let (place, ledger) = Place::migrated().await;
    let insert = "INSERT INTO tb_time_limit_task (key, start_time, end_time) VALUES \
         ('not a key', 1000, 2000), ('Order@close@1', 1000, 2500), ('Order@close@x ', 1000, 3000)";
    place.application().execute_batch(insert).unwrap();
    let scan = DueScan {
        window: Window::Due,
        after: None,
        limit: 3,
    };
    let due = ledger.scan(scan).await.unwrap();
    assert_eq!((due.rows.len(), due.foreign), (1, 2));
    // Each has its place on a page.
    let page = ledger.scan(DueScan { limit: 2, ..scan }).await.unwrap();
    assert_eq!((page.rows.len(), page.foreign), (1, 1));
    let rest = DueScan {
        after: page.next,
        ..scan
    };
    let page = ledger.scan(rest).await.unwrap();
    assert_eq!((page.rows.len(), page.foreign, page.next), (0, 1, None));
    let moved = ledger.whole_rows(Rows::Unfinished, None, 10).await.unwrap();
    assert_eq!((moved.tasks.len(), moved.foreign), (1, 2));
}

/// A legacy program deletes a task as its own rows are deleted: it sets `sts`.
#[tokio::test]
async fn a_deletion_by_a_legacy_program_is_counted_as_a_cancellation_and_reverted_once() {
    let (place, ledger) = Place::migrated().await;
    let armings = create_due(&*ledger, 2).await;
    let waiting = claim(&*ledger, armings[1], LEASE).await.unwrap();
    settle(&*ledger, &waiting, retry_at(UnixMs(4_000_000_000_000))).await;
    let delete = "UPDATE tb_time_limit_task SET sts = 1";
    place.application().execute_batch(delete).unwrap();
    let cancelled = async || ledger.stats().await.unwrap().cancelled;
    assert_eq!(cancelled().await, 2);
    assert!(ledger.undelete(armings[0]).await.unwrap());
    assert_eq!(cancelled().await, 1);
    assert!(!ledger.undelete(armings[0]).await.unwrap());
}

#[tokio::test]
async fn a_limit_of_dead_rows_holds_with_those_that_a_legacy_program_has_deleted() {
    let (place, ledger) = Place::migrated().await;
    for arming in create_due(&*ledger, 2).await {
        let claimed = claim(&*ledger, arming, LEASE).await.unwrap();
        settle(&*ledger, &claimed, bury()).await;
        let delete = "UPDATE tb_time_limit_task SET sts = 1 WHERE id = 1";
        place.application().execute_batch(delete).unwrap();
    }
    for (dead, counted) in [(1, 1), (2, 2), (3, 2)] {
        let limits = DetailedStatsLimits {
            dead,
            ..DetailedStatsLimits::default()
        };
        let found = ledger.detailed_stats(limits).await.unwrap();
        assert_eq!(found.methods[0].dead, counted, "{dead}");
    }
}

/// Those that it has deleted come last.
#[tokio::test]
async fn the_last_surplus_row_may_be_before_those_that_a_legacy_program_has_deleted() {
    let (place, ledger) = Place::migrated().await;
    let armings = create_due(&*ledger, 4).await;
    for arming in &armings {
        let claimed = claim(&*ledger, *arming, LEASE).await.unwrap();
        settle(&*ledger, &claimed, Verdict::Complete).await;
    }
    let delete = format!(
        "UPDATE tb_time_limit_task SET sts = 1 WHERE id = {}",
        armings[0].row
    );
    place.application().execute_batch(&delete).unwrap();
    // In the order of pruning: the rows 1, 2, 3, and then 0.
    for (keep, expected) in [
        (0, Some(0)),
        (1, Some(3)),
        (2, Some(2)),
        (3, Some(1)),
        (4, None),
    ] {
        let last = ledger.surplus(State::Done, keep).await.unwrap();
        let row = last.map(|last| last.row);
        assert_eq!(row, expected.map(|n: usize| armings[n].row), "{keep}");
    }
}

/// Creates tasks that are due, each a millisecond after the one before.
async fn create_due(ledger: &impl Ledger, count: i64) -> Vec<Arming> {
    let mut armings = Vec::new();
    for n in 0..count {
        armings.push(create_at(ledger, &task(&n.to_string()).key, UnixMs(1_000 + n)).await);
    }
    armings.iter().map(|created| created.arming).collect()
}
