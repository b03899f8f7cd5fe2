//! Files that an earlier version has created.

use std::time::Duration;

use lapsed::ledger::{
    Admin as _, Claimant, Claims as _, Collection, Documents as _, Ledger as _, LedgerError,
    ListFilter, ListPage, NewTask, Pauses as _, Producer as _, Progress,
};
use lapsed::task::{Recurrence, Scope, UnixMs};

use crate::sqlite::Place;
use crate::sqlite::faults::task;

#[tokio::test]
async fn a_file_without_documents_runs_tasks_and_gets_them_by_migrating() {
    let (place, ledger) = Place::migrated().await;
    place
        .application()
        .execute_batch("DROP TABLE tb_time_limit_task_documents")
        .unwrap();
    ledger.check().await.unwrap();
    ledger.create(&[task("1")]).await.unwrap();
    let insert = async || ledger.insert_document(Collection::Audit, "one", "{}").await;
    let refused = insert().await.unwrap_err();
    assert!(matches!(refused, LedgerError::Refused { .. }), "{refused}");
    let remedy = "has no such table: tb_time_limit_task_documents; run `lapsed migrate`";
    assert!(refused.to_string().ends_with(remedy), "{refused}");

    let planned = ledger.migrate(true).await.unwrap().statements;
    assert_eq!(planned.len(), 2, "a table and its index: {planned:?}");
    insert().await.unwrap_err();
    assert_eq!(ledger.migrate(false).await.unwrap().statements, planned);
    assert_eq!(insert().await.unwrap(), None);
    assert_eq!(ledger.migrate(false).await.unwrap().statements.len(), 0);
    let kept = ledger.look_up(&[task("1").key]).await.unwrap();
    assert!(kept[0].is_some());
}

#[tokio::test]
async fn a_file_without_the_index_of_recurring_tasks_lists_them_and_gets_it_by_migrating() {
    let (place, ledger) = Place::migrated().await;
    let series = NewTask {
        recurrence: Some(Recurrence::every(Duration::from_secs(60)).unwrap()),
        ..task("series")
    };
    ledger
        .create(&[task("1"), series, task("2")])
        .await
        .unwrap();
    let drop = "DROP INDEX tb_time_limit_task_recurring";
    place.application().execute_batch(drop).unwrap();
    ledger.check().await.unwrap();
    let filter = ListFilter {
        recurring: true,
        limit: 1,
        ..ListFilter::default()
    };
    let before = ledger.list(&filter).await.unwrap();
    let keys: Vec<_> = before.tasks.iter().map(|listed| &listed.key).collect();
    assert_eq!(keys, [&task("series").key]);

    let planned = ledger.migrate(true).await.unwrap().statements;
    assert_eq!(planned.len(), 1, "{planned:?}");
    assert_eq!(ledger.migrate(false).await.unwrap().statements, planned);
    assert_eq!(ledger.migrate(false).await.unwrap().statements.len(), 0);
    assert_eq!(ledger.list(&filter).await.unwrap(), before);
    let rest = ListFilter {
        cursor: before.next,
        ..filter
    };
    assert_eq!(ledger.list(&rest).await.unwrap(), ListPage::default());
}

#[tokio::test]
async fn a_file_of_an_earlier_version_is_refused_until_it_is_migrated_and_can_be_backed_up() {
    let (place, ledger) = Place::migrated().await;
    let due = NewTask::new(task("1").key, UnixMs(1));
    ledger.create(&[due]).await.unwrap();
    ledger.close().await;
    let drop = "ALTER TABLE tb_time_limit_task DROP COLUMN progress; \
         ALTER TABLE tb_time_limit_task DROP COLUMN claimed_at; \
         ALTER TABLE tb_time_limit_task_archive DROP COLUMN claimed_at";
    place.application().execute_batch(drop).unwrap();

    let ledger = place.ledger();
    let refused = ledger.check().await.unwrap_err();
    let remedy = "table `tb_time_limit_task` lacks column `progress`: run `lapsed migrate`";
    assert!(refused.to_string().ends_with(remedy), "{refused}");
    let copy = place.path("copy.db");
    assert_eq!(ledger.back_up(copy).await.unwrap().rows, 1);
    let planned = ledger.migrate(true).await.unwrap().statements;
    assert_eq!(planned.len(), 3, "{planned:?}");
    assert_eq!(ledger.migrate(false).await.unwrap().statements, planned);
    assert_eq!(ledger.migrate(false).await.unwrap().statements.len(), 0);
    ledger.check().await.unwrap();

    let claimant = Claimant {
        daemon: "test:1".into(),
        lease: Duration::from_secs(60),
    };
    let found = ledger.look_up(&[task("1").key]).await.unwrap().remove(0);
    let arming = found.unwrap().arming;
    let claims = ledger.claim(&[arming], &claimant).await.unwrap();
    let reports = [(claims[0].lease, Progress::new(40, "on").unwrap())];
    ledger.report(&reports, claimant.lease).await.unwrap();
    let found = ledger.find(&task("1").key).await.unwrap().unwrap();
    assert_eq!(found.progress.unwrap().to_string(), "40 %, on");
    assert!(found.started.is_some());
}

#[tokio::test]
async fn a_file_whose_pauses_have_no_end_is_refused_until_it_is_migrated() {
    let (place, ledger) = Place::migrated().await;
    let name: Scope = "Job".parse().unwrap();
    ledger.pause(&name, None, "me", "").await.unwrap();
    ledger.close().await;
    let drop = "ALTER TABLE tb_time_limit_task_pauses DROP COLUMN until";
    place.application().execute_batch(drop).unwrap();

    let ledger = place.ledger();
    let refused = ledger.check().await.unwrap_err();
    let remedy = "table `tb_time_limit_task_pauses` lacks column `until`: run `lapsed migrate`";
    assert!(refused.to_string().ends_with(remedy), "{refused}");
    assert_eq!(ledger.migrate(false).await.unwrap().statements.len(), 1);
    assert_eq!(ledger.migrate(false).await.unwrap().statements.len(), 0);
    ledger.check().await.unwrap();
    let pauses = ledger.pauses().await.unwrap();
    assert_eq!((&pauses[0].scope, pauses[0].until), (&name, None));
}
