//! How much one call reads and writes, while others wait.

use std::sync::{Arc, Mutex};

use lapsed::ledger::{
    Change, Changed, LedgerError, ListFilter, NewTask, Producer as _, RowSnapshot, See,
};
use lapsed::task::{Contents, UnixMs};
use lapsed::{Config, SqliteTaskClient, TaskKey};

use crate::resp::rig::{RespServer, Wire};
use crate::sqlite::Place;

const PAYLOAD: usize = 64 * 1024;

fn keys(count: usize) -> Vec<TaskKey> {
    let keys = (0..count).map(|number| TaskKey::parse(&format!("Big@value@{number:03}")));
    keys.collect::<Result<_, _>>().unwrap()
}

/// Stores tasks with the longest payload.
async fn store(ledger: &impl lapsed::ledger::Ledger, keys: &[TaskKey]) -> UnixMs {
    let due = UnixMs(ledger.now().await.unwrap().0 + 3_600_000);
    let payload = format!("\"{}\"", "x".repeat(PAYLOAD - 2));
    for keys in keys.chunks(10) {
        let tasks = keys.iter().map(|key| NewTask {
            contents: Contents {
                payload: Some(payload.clone()),
                ..Contents::default()
            },
            ..NewTask::new(key.clone(), due)
        });
        ledger.create(&tasks.collect::<Vec<_>>()).await.unwrap();
    }
    due
}

/// Allows a number of bytes, and counts the payloads that it got without asking.
struct Within(u64, Mutex<usize>);

impl See for Within {
    fn needs_payload(&self, _: usize) -> bool {
        false
    }

    fn see(&self, _: usize, row: Option<RowSnapshot>) {
        let payload = row.and_then(|row| row.contents.payload);
        *self.1.lock().unwrap() += usize::from(payload.is_some());
    }

    fn changed_bytes_max(&self) -> u64 {
        self.0
    }
}

#[tokio::test]
async fn a_change_of_more_bytes_than_its_caller_allows_changes_nothing_and_reads_no_payload() {
    let (_place, ledger) = Place::migrated().await;
    let keys = keys(40);
    let due = store(&*ledger, &keys).await;
    let later = UnixMs(due.0 + 1);
    let all = (40 * PAYLOAD) as u64;
    for (most, moved) in [(all - 1, false), (all, true)] {
        let see = Arc::new(Within(most, Mutex::default()));
        let seen = Arc::clone(&see) as Arc<dyn See>;
        let decide = Arc::new(move |_| vec![Change::Move(later); 40]);
        let changed = ledger.change(&keys, seen, decide).await;
        assert_eq!(*see.1.lock().unwrap(), 0);
        match changed {
            Ok(changed) => {
                assert!(moved);
                assert!(changed.iter().all(|it| matches!(it, Changed::Armed(_))));
            }
            Err(LedgerError::TooLarge { bytes, most }) => {
                assert!(!moved);
                assert_eq!((bytes, most), (all, all - 1));
            }
            Err(error) => panic!("{error}"),
        }
        for key in &keys {
            let row = ledger.read_row(key).await.unwrap().unwrap();
            let expected = if moved { later } else { due };
            assert_eq!(row.lookup.arming.due, expected, "{key}");
            assert_eq!(row.contents.payload.unwrap().len(), PAYLOAD);
        }
    }
}

#[tokio::test]
async fn a_write_counts_the_bytes_that_it_replaces_and_those_that_it_brings() {
    let (_place, ledger) = Place::migrated().await;
    let [there, new] = [&keys(2)[0], &keys(2)[1]];
    let due = store(&*ledger, std::slice::from_ref(there)).await;
    let written = format!("\"{}\"", "y".repeat(98));
    for (key, expected) in [(there, PAYLOAD + 100), (new, 100)] {
        let mut task = NewTask::new(key.clone(), UnixMs(due.0 + 1));
        task.contents.payload = Some(written.clone());
        let see = Arc::new(Within(expected as u64 - 1, Mutex::default()));
        let decide = Arc::new(move |_| vec![Change::Write(Box::new(task.clone()))]);
        let changed = ledger.change(std::slice::from_ref(key), see, decide).await;
        let Err(LedgerError::TooLarge { bytes, .. }) = changed else {
            panic!("{changed:?}");
        };
        assert_eq!(bytes, expected as u64);
    }
}

#[tokio::test]
async fn a_page_of_a_cancellation_ends_where_its_rows_are_long() {
    let (_place, ledger) = Place::migrated().await;
    let keys = keys(200);
    store(&*ledger, &keys).await;
    let mut filter = ListFilter::prefix("Big@");
    let dry = ledger.cancel_page(&filter, true).await.unwrap();
    assert_eq!(dry.cancelled.len(), 200);
    let mut pages = Vec::new();
    loop {
        let page = ledger.cancel_page(&filter, false).await.unwrap();
        pages.push(page.cancelled.len());
        filter.cursor = page.next;
        if filter.cursor.is_none() {
            break;
        }
    }
    // 8 MiB are 128 rows.
    assert_eq!(pages, [128, 72]);
    let row = ledger.read_row(&keys[0]).await.unwrap().unwrap();
    assert_eq!(row.contents.payload.unwrap().len(), PAYLOAD);
}

#[tokio::test]
async fn many_long_tasks_are_changed_by_a_pipeline_but_not_by_a_transaction() {
    let (place, ledger) = Place::migrated().await;
    let keys = keys(200);
    store(&*ledger, &keys).await;
    let config = format!("[ledger]\nurl = 'sqlite://{}'", place.file().display());
    let tasks = SqliteTaskClient::connect(&Config::from_toml(&config).unwrap()).await;
    let server = RespServer::of(tasks.unwrap().clone().into());
    let mut wire = server.connect().await;
    let moves: String = keys
        .iter()
        .map(|key| format!("EXPIRE {key} 7200\r\n"))
        .collect();
    wire.send(format!("MULTI\r\n{moves}EXEC\r\n")).await;
    let refused =
        "-EXECABORT Transaction discarded because it changes tasks of more than 8388608 bytes\r\n";
    wire.read_until(refused).await;
    // A busy machine may take seconds for that.
    let ttl = async |wire: &mut Wire, key: &TaskKey| {
        let said = wire.says(&format!("TTL {key}")).await;
        said.trim_start_matches(':').parse::<u32>().unwrap()
    };
    let kept = ttl(&mut wire, &keys[0]).await;
    assert!((3_000..=3_600).contains(&kept), "{kept}");
    wire.send(format!("{moves}PING\r\n")).await;
    let said = wire.read_until("+PONG\r\n").await;
    assert_eq!(said, format!("{}+PONG\r\n", ":1\r\n".repeat(200)));
    let moved = ttl(&mut wire, &keys[199]).await;
    assert!((6_600..=7_200).contains(&moved), "{moved}");
    let named: Vec<&str> = keys.iter().map(TaskKey::as_str).collect();
    assert_eq!(wire.says(&format!("DEL {}", named.join(" "))).await, ":200");
    assert_eq!(
        wire.says(&format!("EXISTS {}", named.join(" "))).await,
        ":0"
    );
}
