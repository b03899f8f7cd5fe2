//! Documents: written once, listed newest first, deleted when they are old.

use lapsed::ledger::{
    Collection, DOCUMENT_BYTES_MAX, DOCUMENT_NAME_CHARS_MAX, Document, DocumentPlace,
    DocumentRange, Documents, Ledger, LedgerError,
};
use lapsed::task::UnixMs;

use crate::ledger_conformance::rig::pass;

rules! {
    a_document_is_written_once
    a_body_is_replaced_and_its_time_stays
    documents_are_listed_newest_first_page_by_page
    old_documents_are_deleted_oldest_first
    names_and_bodies_that_do_not_fit_are_refused
    a_body_may_have_a_megabyte_of_any_text
}

/// Inserts documents of these names, each at a later time than the one before.
async fn insert(ledger: &impl Ledger, collection: Collection, names: &[&str]) {
    for name in names {
        let inserted = ledger.insert_document(collection, name, "{}").await;
        assert_eq!(inserted.unwrap(), None, "{name}");
        pass(ledger, ledger.sync_clock().await.unwrap()).await;
    }
}

fn names(documents: &[Document]) -> Vec<&str> {
    documents
        .iter()
        .map(|document| &document.name[..])
        .collect()
}

async fn clear(ledger: &impl Documents, collection: Collection) {
    let end = UnixMs(9_999_999_999_999);
    ledger
        .delete_documents(collection, end, 1_000)
        .await
        .unwrap();
}

async fn a_document_is_written_once(ledger: &impl Ledger) {
    let of = Collection::SharedKeys;
    let before = ledger.sync_clock().await.unwrap();
    let insert = async |name, body| ledger.insert_document(of, name, body).await.unwrap();
    assert_eq!(insert("once", "[1]").await, None);
    let existing = insert("once", "[2]").await.expect("there is one");
    assert_eq!((&*existing.name, &*existing.body), ("once", "[1]"));
    assert!(existing.at >= before && existing.at <= ledger.sync_clock().await.unwrap());
    let found = ledger.find_document(of, "once").await.unwrap();
    assert_eq!(found, Some(existing));

    assert_eq!(insert("Once", "[3]").await, None, "names are exact");
    let other = Collection::EndedSessions;
    assert_eq!(ledger.find_document(other, "once").await.unwrap(), None);
    let elsewhere = ledger.insert_document(other, "once", "[4]").await;
    assert_eq!(elsewhere.unwrap(), None, "names are of their collection");

    assert!(ledger.delete_document(of, "once").await.unwrap());
    assert!(!ledger.delete_document(of, "once").await.unwrap());
    assert_eq!(ledger.find_document(of, "once").await.unwrap(), None);
    assert_eq!(insert("once", "[5]").await, None);
    clear(ledger, of).await;
    clear(ledger, other).await;
}

async fn a_body_is_replaced_and_its_time_stays(ledger: &impl Ledger) {
    let of = Collection::Idempotency;
    let replace = async |body| ledger.replace_document(of, "batch", body).await.unwrap();
    assert!(!replace("[1]").await, "there is none");
    assert_eq!(ledger.find_document(of, "batch").await.unwrap(), None);
    insert(ledger, of, &["batch"]).await;
    let before = ledger.find_document(of, "batch").await.unwrap().unwrap();
    assert!(replace("[2]").await);
    // The same text again is a replacement, too.
    assert!(replace("[2]").await);
    let after = ledger.find_document(of, "batch").await.unwrap().unwrap();
    assert_eq!((after.at, &*after.body), (before.at, "[2]"));
    clear(ledger, of).await;
}

async fn documents_are_listed_newest_first_page_by_page(ledger: &impl Ledger) {
    let of = Collection::Audit;
    insert(ledger, Collection::History, &["other"]).await;
    insert(ledger, of, &["b", "a", "d", "c"]).await;
    // Some of the same time, probably.
    for name in ["1", "2", "3", "4", "5"] {
        ledger.insert_document(of, name, "{}").await.unwrap();
    }
    let all = ledger.documents(of, &DocumentRange::latest(100)).await;
    let all = all.unwrap();
    assert_eq!(all.len(), 9);
    assert_eq!(names(&all[5..]), ["c", "d", "a", "b"]);
    assert!(all.windows(2).all(|pair| pair[0].place() > pair[1].place()));

    let mut paged = Vec::new();
    let mut before = DocumentPlace::END;
    loop {
        let range = DocumentRange {
            since: UnixMs(0),
            before,
            limit: 2,
        };
        let page = ledger.documents(of, &range).await.unwrap();
        assert!(page.len() <= 2);
        let Some(last) = page.last() else {
            break;
        };
        before = last.place();
        paged.extend(page);
    }
    assert_eq!(paged, all);

    let since = DocumentRange {
        since: all[6].at,
        ..DocumentRange::latest(100)
    };
    assert_eq!(ledger.documents(of, &since).await.unwrap(), all[..7]);
    clear(ledger, of).await;
    clear(ledger, Collection::History).await;
}

async fn old_documents_are_deleted_oldest_first(ledger: &impl Ledger) {
    let of = Collection::History;
    insert(ledger, of, &["4", "3", "2", "1"]).await;
    insert(ledger, Collection::Audit, &["other"]).await;
    let latest = ledger.find_document(of, "1").await.unwrap().unwrap();
    let delete = async |before, limit| ledger.delete_documents(of, before, limit).await.unwrap();
    assert_eq!(delete(latest.at, 2).await, 2);
    let left = async || {
        let left = ledger.documents(of, &DocumentRange::latest(10)).await;
        names(&left.unwrap()).join(" ")
    };
    assert_eq!(left().await, "1 2");
    assert_eq!(delete(latest.at, 2).await, 1);
    assert_eq!(delete(latest.at, 2).await, 0, "that one is not older");
    assert_eq!(left().await, "1");
    clear(ledger, of).await;
    let other = ledger.find_document(Collection::Audit, "other").await;
    assert!(other.unwrap().is_some());
    clear(ledger, Collection::Audit).await;
}

async fn names_and_bodies_that_do_not_fit_are_refused(ledger: &impl Ledger) {
    let of = Collection::Idempotency;
    let long = "x".repeat(DOCUMENT_NAME_CHARS_MAX + 1);
    for name in ["", "a b", "ü", "a\n", &long] {
        for refused in [
            ledger.insert_document(of, name, "{}").await.map(drop),
            ledger.replace_document(of, name, "{}").await.map(drop),
            ledger.find_document(of, name).await.map(drop),
            ledger.delete_document(of, name).await.map(drop),
        ] {
            let refused = refused.unwrap_err();
            assert!(matches!(refused, LedgerError::Invalid(_)), "{refused}");
        }
    }
    insert(ledger, of, &[&long[1..]]).await;
    clear(ledger, of).await;
    let body = "x".repeat(DOCUMENT_BYTES_MAX + 1);
    let refused = ledger.insert_document(of, "large", &body).await;
    assert_eq!(
        refused.unwrap_err().to_string(),
        "document has 1048577 bytes, expected at most 1048576"
    );
    assert_eq!(ledger.find_document(of, "large").await.unwrap(), None);
}

async fn a_body_may_have_a_megabyte_of_any_text(ledger: &impl Ledger) {
    let of = Collection::Idempotency;
    let body = "\u{1f512}\u{0}'\"\\".repeat(DOCUMENT_BYTES_MAX / 8);
    assert_eq!(body.len(), DOCUMENT_BYTES_MAX);
    ledger.insert_document(of, "large", &body).await.unwrap();
    let found = ledger.find_document(of, "large").await.unwrap().unwrap();
    assert!(found.body == body);
    clear(ledger, of).await;
}
