//! A server that takes short packets only: statements of many rows are cut, and a row that does not fit is refused alone.

use lapsed::ledger::mysql::MysqlLedger;
use lapsed::ledger::transfer::{Rows, Transfers};
use lapsed::ledger::{Admin, Adopted, Adoption, AdoptionRequest, LedgerError, NewTask, Producer};
use lapsed::task::{Contents, TaskKey, UnixMs};
use lapsed_sandbox::PrivateMaria;

use crate::mysql::rig::connect;

/// A server with this `max_allowed_packet`, and ledgers in two of its databases.
async fn start(packet_max: &str) -> (PrivateMaria, MysqlLedger, MysqlLedger) {
    let server = PrivateMaria::options()
        .durable(false)
        .set("max-allowed-packet", packet_max)
        .start()
        .await
        .unwrap();
    let mut ledgers = Vec::new();
    for name in ["app", "other"] {
        let ledger = connect(&server.create_database(name).await.unwrap());
        ledger.migrate().await.unwrap();
        ledgers.push(ledger);
    }
    let other = ledgers.pop().unwrap();
    (server, ledgers.pop().unwrap(), other)
}

fn key(n: usize) -> TaskKey {
    TaskKey::build("Big", "run", [n.to_string()]).unwrap()
}

/// A JSON text of this length.
fn payload(bytes: usize) -> Option<String> {
    Some(format!("\"{}\"", "x".repeat(bytes - 2)))
}

fn task(n: usize, due: UnixMs, bytes: usize) -> NewTask {
    NewTask {
        contents: Contents {
            payload: payload(bytes),
            ..Contents::default()
        },
        ..NewTask::new(key(n), due)
    }
}

fn found(n: usize, due: UnixMs, bytes: usize) -> AdoptionRequest {
    AdoptionRequest {
        key: key(n),
        due,
        heard: UnixMs(due.0 - 60_000),
        from_key: true,
        is_entry: false,
        over: None,
        payload: payload(bytes),
    }
}

#[tokio::test]
async fn long_payloads_are_written_in_statements_that_the_server_takes() {
    const LONG: usize = 60 << 10;
    let (_server, ledger, other) = start("1M").await;
    let due = UnixMs(ledger.now().await.unwrap().0 + 3_600_000);
    let tasks: Vec<NewTask> = (0..100).map(|n| task(n, due, LONG)).collect();
    assert_eq!(ledger.create(&tasks).await.unwrap().len(), 100);
    let found: Vec<AdoptionRequest> = (100..200).map(|n| found(n, due, LONG)).collect();
    let adopted = ledger.adopt(&found).await.unwrap();
    let is_written = |answer: &&Adopted| matches!(answer, Adopted::Written(_));
    assert_eq!(adopted.iter().filter(is_written).count(), 100);
    assert_eq!(ledger.stats().await.unwrap().pending, 200);

    let page = ledger
        .whole_rows(Rows::Unfinished, None, 200)
        .await
        .unwrap();
    assert_eq!(page.tasks.len(), 200);
    assert_eq!(other.copy(&page.tasks).await.unwrap(), 200);
}

#[tokio::test]
async fn a_task_that_no_packet_holds_is_refused_and_delays_no_other() {
    // Less than the longest payload and its row.
    let (_server, ledger, _) = start("64K").await;
    let (long, short) = (64 << 10, 100);
    let due = UnixMs(ledger.now().await.unwrap().0 + 3_600_000);
    let refused = ledger.create(&[task(1, due, long)]).await;
    let Err(LedgerError::Unfit { message, .. }) = refused else {
        panic!("{refused:?}");
    };
    assert!(message.contains("task `Big@run@1` has"), "{message}");
    assert!(message.contains("`max_allowed_packet`"), "{message}");
    ledger.create(&[task(2, due, short)]).await.unwrap();

    let mut all: Vec<AdoptionRequest> = (10..30).map(|n| found(n, due, short)).collect();
    all.insert(7, found(1, due, long));
    let adopted = ledger.adopt(&all).await.unwrap();
    for (n, answer) in adopted.iter().enumerate() {
        match (n, answer) {
            (7, Adopted::Refused(why)) => assert!(why.contains("max_allowed_packet"), "{why}"),
            (n, Adopted::Written(_)) if n != 7 => {}
            other => panic!("{other:?}"),
        }
    }
}
