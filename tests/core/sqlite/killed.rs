//! A process that writes is killed at any instant: what it has acknowledged is there, and the file is sound.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use lapsed::config::LedgerConfig;
use lapsed::ledger::sqlite::SqliteLedger;
use lapsed::ledger::{
    Claimant, Claims as _, Ledger as _, NewTask, Producer as _, Settled, Settlement,
};
use lapsed::rusqlite::Connection;
use lapsed::task::{Arming, State, Verdict};
use lapsed::{Config, TaskKey};

use crate::sqlite::Place;
use crate::support::wait::until;

/// Names the file of the process that writes.
const FILE: &str = "LAPSED_TEST_KILLED_FILE";

/// Names the file in which it writes down what was acknowledged.
const JOURNAL: &str = "LAPSED_TEST_KILLED_JOURNAL";

/// Number of kills, instead of [`KILLS`].
const COUNT: &str = "LAPSED_TEST_KILLS";
const KILLS: u32 = 20;

/// Tasks that write at the same time.
const WRITERS: u32 = 4;

fn config(file: &Path) -> LedgerConfig {
    LedgerConfig {
        url: format!("sqlite://{}", file.display()).into(),
        ..Config::default().ledger
    }
}

/// What a process has acknowledged: the last state of each key.
fn acknowledged(journal: &Path) -> BTreeMap<TaskKey, State> {
    let text = std::fs::read_to_string(journal).unwrap();
    let mut states = BTreeMap::new();
    // The last line may have been cut.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    for line in whole.lines() {
        let (state, key) = line.split_once(' ').unwrap();
        let state = match state {
            "pending" => State::Pending,
            "running" => State::Running,
            "done" => State::Done,
            "cancelled" => State::Cancelled,
            other => panic!("{other}"),
        };
        states.insert(TaskKey::parse(key).unwrap(), state);
    }
    states
}

/// True if a state can follow from another without being acknowledged.
fn may_follow(found: State, acknowledged: State) -> bool {
    match acknowledged {
        State::Pending => true,
        State::Running => matches!(found, State::Running | State::Done),
        finished => found == finished,
    }
}

#[tokio::test]
async fn nothing_acknowledged_is_lost_when_a_writer_is_killed_at_any_instant() {
    let kills = std::env::var(COUNT).map_or(KILLS, |count| count.parse().unwrap());
    let (mut place, mut total) = (Place::new(), 0);
    for kill in 0..kills {
        // Every now and then, it is killed while it creates the file.
        if kill % 10 == 0 {
            place = Place::new();
        }
        let journal = place.path("journal");
        File::create(&journal).unwrap();
        let mut writer = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "sqlite::killed::write",
                "--ignored",
                "--nocapture",
            ])
            .env(FILE, place.file())
            .env(JOURNAL, &journal)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        until("it has begun", async || place.file().exists()).await;
        let instant = Duration::from_micros(rand::random_range(0..120_000));
        tokio::time::sleep(instant).await;
        writer.kill().unwrap();
        writer.wait().unwrap();

        let ledger = place.ledger();
        ledger.migrate(false).await.unwrap();
        ledger.check().await.unwrap();
        let acknowledged = acknowledged(&journal);
        let keys: Vec<TaskKey> = acknowledged.keys().cloned().collect();
        let found = ledger.look_up(&keys).await.unwrap();
        for ((key, acknowledged), found) in acknowledged.iter().zip(found) {
            let Some(found) = found else {
                panic!("kill {kill} after {instant:?}: `{key}` was {acknowledged} and is lost");
            };
            assert!(
                may_follow(found.state, *acknowledged),
                "kill {kill} after {instant:?}: `{key}` was {acknowledged} and is {}",
                found.state
            );
        }
        total += keys.len();
        ledger.close().await;
        let connection = Connection::open(place.file()).unwrap();
        let check = "PRAGMA quick_check";
        let checked: String = connection.query_row(check, [], |row| row.get(0)).unwrap();
        assert_eq!(checked, "ok", "kill {kill} after {instant:?}");
    }
    eprintln!("{kills} kills, {total} acknowledged tasks");
    assert!(total > kills as usize, "it was killed before it wrote");
}

/// The process that is killed. Writes a line for each task after its verb was acknowledged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a program of the test above"]
async fn write() {
    let file = std::env::var_os(FILE).expect("started by another test");
    let ledger = Arc::new(SqliteLedger::new(&config(Path::new(&file))).unwrap());
    ledger.migrate(false).await.unwrap();
    let writers = (0..WRITERS).map(|_| tokio::spawn(write_tasks(Arc::clone(&ledger))));
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
}

/// Creates tasks, and runs or cancels them.
async fn write_tasks(ledger: Arc<SqliteLedger>) {
    let by = Claimant {
        daemon: "test:1".into(),
        lease: Duration::from_secs(300),
    };
    loop {
        let due = ledger.sync_clock().await.unwrap();
        let tasks: Vec<NewTask> = (0..8)
            .map(|_| {
                let name = format!("{:016x}", rand::random::<u64>());
                NewTask::new(TaskKey::build("Order", "close", [name]).unwrap(), due)
            })
            .collect();
        let created = ledger.create(&tasks).await.unwrap();
        say("pending", tasks.iter().map(|task| &task.key));
        let armings: Vec<Arming> = created[..6].iter().map(|created| created.arming).collect();
        let claims = ledger.claim(&armings, &by).await.unwrap();
        say("running", claims.iter().map(|claim| &claim.key));
        let settlements: Vec<Settlement> = claims[..3]
            .iter()
            .map(|claim| Settlement {
                lease: claim.lease,
                verdict: Verdict::CompleteWith("[1]".into()),
            })
            .collect();
        let settled = ledger.settle(&settlements).await.unwrap();
        assert_eq!(settled, [Settled::Applied; 3]);
        say("done", claims[..3].iter().map(|claim| &claim.key));
        let last = [tasks[7].key.clone()];
        ledger.cancel(&last).await.unwrap();
        say("cancelled", &last);
    }
}

fn say<'a>(state: &str, keys: impl IntoIterator<Item = &'a TaskKey>) {
    let lines: String = keys
        .into_iter()
        .map(|key| format!("{state} {key}\n"))
        .collect();
    let journal = std::env::var_os(JOURNAL).expect("started by another test");
    let mut journal = OpenOptions::new().append(true).open(journal).unwrap();
    journal.write_all(lines.as_bytes()).unwrap();
}
