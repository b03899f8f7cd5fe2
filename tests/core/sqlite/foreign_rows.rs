//! Rows of other programs that are no tasks.

use lapsed::ledger::{Admin as _, ListFilter, Producer as _, StateFilter};
use lapsed::task::{ClassGlob, State};

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
}
