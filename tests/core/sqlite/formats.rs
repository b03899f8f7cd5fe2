//! Files that an earlier version has created.

use lapsed::ledger::{
    Claims as _, Collection, Documents as _, Ledger as _, LedgerError, Producer as _,
};

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
