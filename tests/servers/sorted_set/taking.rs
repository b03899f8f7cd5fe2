//! Entries that one daemon takes while another acknowledges them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lapsed::clock::{LedgerClock, wall};
use lapsed::engine::Metrics;
use lapsed::task::{Arming, Origin, Removal, RowEvidence, State};
use lapsed::timer::sorted_set::SortedSet;
use lapsed::timer::{
    Acknowledgement, AdoptionCandidate, AdoptionSink, Alarm, Cause, Entries, EntryState, Peers,
    Seen, Signal, SignalSink, Taking, Timer,
};
use lapsed::{Config, TaskKey, UnixMs};
use lapsed_sandbox::PrivateRedis;
use redis::aio::MultiplexedConnection;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::queue::SET;
use crate::support::redis_commands::ask;
use crate::support::wait::{until, until_within};

/// A timer of a daemon, and what it proposed.
struct Watcher {
    timer: Arc<SortedSet>,
    proposed: Arc<Proposed>,
    _stop: DropGuard,
}

#[derive(Default)]
struct Proposed(Mutex<Vec<AdoptionCandidate>>, Mutex<Vec<Cause>>);

impl SignalSink for Proposed {
    fn raise(&self, _: Signal) {}

    fn sweep(&self, _: Cause) {}

    fn audit(&self, cause: Cause) {
        self.1.lock().unwrap().push(cause);
    }

    fn wants(&self, _: &TaskKey) -> bool {
        true
    }

    fn owns(&self, _: &TaskKey) -> bool {
        true
    }
}

impl AdoptionSink for Proposed {
    fn propose(&self, candidate: AdoptionCandidate) {
        self.0.lock().unwrap().push(candidate);
    }
}

impl Peers for Proposed {}

impl Proposed {
    /// When the entry was read.
    fn read_at(&self, key: &TaskKey) -> UnixMs {
        let proposed = self.0.lock().unwrap();
        let of_key = proposed.iter().filter(|candidate| candidate.key == *key);
        let mut read = of_key.filter_map(|candidate| match candidate.seen {
            Seen::Requested { heard, .. } => Some(heard),
            _ => None,
        });
        read.next().expect("it was proposed")
    }
}

impl Watcher {
    async fn start(redis: &PrivateRedis) -> Self {
        let settings = format!("timer = 'sorted_set'\nredis.url = '{}'", redis.url());
        let config = Config::from_toml(&settings).unwrap();
        let (clock, metrics) = (LedgerClock::starting_at(wall()), Arc::default());
        let metrics: Arc<Metrics> = metrics;
        let sets = config.sorted_set.clone();
        let timer = SortedSet::new(&config.redis, sets, clock, metrics, "taking".into()).unwrap();
        let (timer, proposed) = (Arc::new(timer), Arc::<Proposed>::default());
        let (running, sink) = (Arc::clone(&timer), Arc::clone(&proposed));
        let stop = CancellationToken::new();
        let until_stop = stop.clone();
        tokio::spawn(async move { running.run(sink, until_stop).await });
        Self {
            timer,
            proposed,
            _stop: stop.drop_guard(),
        }
    }

    /// Waits until it has proposed the entry, and returns the due time.
    async fn requested(&self, key: &TaskKey) -> UnixMs {
        let due = || {
            let proposed = self.proposed.0.lock().unwrap();
            proposed.iter().find_map(|candidate| match candidate.seen {
                Seen::Requested { due, .. } if candidate.key == *key => Some(due),
                _ => None,
            })
        };
        until(format!("{key} is proposed"), async || due().is_some()).await;
        due().unwrap()
    }

    fn reports_missing(&self, key: &TaskKey) -> bool {
        let proposed = self.proposed.0.lock().unwrap();
        proposed
            .iter()
            .any(|candidate| candidate.key == *key && matches!(candidate.seen, Seen::Disarmed(_)))
    }
}

fn alarm_of(key: &TaskKey, due: UnixMs) -> Alarm {
    Alarm {
        key: key.clone(),
        due,
        arming: Some(Arming { row: 1, due }),
    }
}

/// A missing entry is evidence from now on.
async fn keep_marks(redis: &mut MultiplexedConnection, watcher: &Watcher) {
    until("the mark is kept", async || {
        watcher.timer.audited(UnixMs(wall().0 + 60_000)).await;
        let words = ["ZRANGEBYSCORE", SET, "inf", "inf"];
        let marks: Vec<String> = ask(&mut redis.clone(), &words).await;
        marks.iter().any(|mark| mark.starts_with("#lapsed:kept:"))
    })
    .await;
}

async fn two_watchers() -> (PrivateRedis, MultiplexedConnection, [Watcher; 2]) {
    let server = PrivateRedis::start().await.unwrap();
    let mut redis = server.connect(0).await.unwrap();
    let words = ["CONFIG", "SET", "notify-keyspace-events", "Kz"];
    let () = ask(&mut redis, &words).await;
    let watchers = [Watcher::start(&server).await, Watcher::start(&server).await];
    keep_marks(&mut redis, &watchers[0]).await;
    (server, redis, watchers)
}

/// The entry of one task, read by both daemons and acknowledged by the first.
async fn acknowledged_by_one(
    redis: &mut MultiplexedConnection,
    [first, second]: &[Watcher; 2],
) -> (TaskKey, Acknowledgement) {
    let key = TaskKey::build("Job", "record", ["1"]).unwrap();
    let now = wall().0 / 1000;
    let words = ["ZADD", SET, &now.to_string(), key.as_str()];
    let _: i64 = ask(redis, &words).await;
    let due = first.requested(&key).await;
    assert_eq!(second.requested(&key).await, due);
    let answer = Acknowledgement {
        key: key.clone(),
        requested: due,
        state: EntryState::Pending(due),
    };
    first
        .timer
        .acknowledge(std::slice::from_ref(&answer))
        .await
        .unwrap();
    (key, answer)
}

#[tokio::test]
async fn an_entry_that_another_daemon_took_for_a_start_is_not_missing() {
    let (_server, mut redis, watchers) = two_watchers().await;
    let (key, answer) = acknowledged_by_one(&mut redis, &watchers).await;
    let due = answer.requested;
    let taken = watchers[0].timer.take(&[alarm_of(&key, due)]).await;
    let taken = taken.unwrap();
    assert_eq!(taken, [Taking::Taken]);
    watchers[1].timer.acknowledge(&[answer]).await.unwrap();
    assert!(!watchers[1].reports_missing(&key));
}

#[tokio::test]
async fn an_entry_that_a_program_removed_is_missing() {
    let (_server, mut redis, watchers) = two_watchers().await;
    let (key, answer) = acknowledged_by_one(&mut redis, &watchers).await;
    let removed: i64 = ask(&mut redis, &["ZREM", SET, key.as_str()]).await;
    assert_eq!(removed, 1);
    watchers[1].timer.acknowledge(&[answer]).await.unwrap();
    assert!(watchers[1].reports_missing(&key));
}

#[tokio::test]
async fn an_entry_that_a_program_has_moved_by_a_moment_is_not_taken_for_its_older_time() {
    let (_server, mut redis, watchers) = two_watchers().await;
    let (key, answer) = acknowledged_by_one(&mut redis, &watchers).await;
    let later = (answer.requested.0 + 200).to_string();
    let added: i64 = ask(&mut redis, &["ZADD", SET, &later, key.as_str()]).await;
    assert_eq!(added, 0);
    let take = async |due| {
        let taken = watchers[0].timer.take(&[alarm_of(&key, due)]).await;
        taken.unwrap()
    };
    assert_eq!(take(answer.requested).await, [Taking::Moved]);
    let score: Option<String> = ask(&mut redis, &["ZSCORE", SET, key.as_str()]).await;
    assert_eq!(score, Some(later));
    let moved = UnixMs(answer.requested.0 + 200);
    assert_eq!(take(moved).await, [Taking::Taken]);
}

/// A row that was written for an entry which was read at this time.
fn row_of(due: UnixMs, read: UnixMs) -> RowEvidence {
    RowEvidence {
        state: State::Pending,
        due,
        due_at: due,
        origin: Origin::Entry,
        deleted: false,
        changed: read,
        created: read,
        ended: None,
    }
}

/// Takes an entry that is missing. Returns the evidence.
async fn removal(watcher: &Watcher, key: &TaskKey, due: UnixMs) -> Removal {
    let taken = watcher.timer.take(&[alarm_of(key, due)]).await.unwrap();
    let [Taking::Removed(removal)] = taken[..] else {
        panic!("{taken:?}");
    };
    removal
}

#[tokio::test]
async fn an_entry_that_was_read_before_its_set_was_lost_is_unconfirmed_until_a_later_audit() {
    let (_server, mut redis, watchers) = two_watchers().await;
    let key = TaskKey::build("Job", "record", ["before"]).unwrap();
    let now = (wall().0 / 1000).to_string();
    let _: i64 = ask(&mut redis, &["ZADD", SET, &now, key.as_str()]).await;
    let due = watchers[0].requested(&key).await;
    let read = wall();
    let () = ask(&mut redis, &["FLUSHALL"]).await;
    keep_marks(&mut redis, &watchers[1]).await;
    let missing = removal(&watchers[1], &key, due).await;
    assert!(missing.is_unconfirmed(&row_of(due, read)), "{missing:?}");
    // It counts for rows that the audit has seen, and for entries that were read since.
    let long_ago = UnixMs(read.0 - 60_000);
    assert!(
        !missing.is_unconfirmed(&row_of(due, long_ago)),
        "{missing:?}"
    );
    let (after, answer) = acknowledged_by_one(&mut redis, &watchers).await;
    let removed: i64 = ask(&mut redis, &["ZREM", SET, after.as_str()]).await;
    assert_eq!(removed, 1);
    let missing = removal(&watchers[1], &after, answer.requested).await;
    assert!(!missing.is_unconfirmed(&row_of(answer.requested, wall())));
    // An audit that begins later has the engine write such an entry. After it the evidence counts again.
    watchers[0]
        .timer
        .restore(&[alarm_of(&key, due)])
        .await
        .unwrap();
    let score: Option<String> = ask(&mut redis, &["ZSCORE", SET, key.as_str()]).await;
    assert_eq!(score, Some((due.0 * 1000).to_string()));
    until_within(
        Duration::from_secs(60),
        "the loss is forgotten",
        async || {
            watchers[0].timer.audited(UnixMs(wall().0 + 60_000)).await;
            let words = ["HGET", "#lapsed:sets:taking", "lost"];
            let lost: Option<String> = ask(&mut redis.clone(), &words).await;
            lost.is_none()
        },
    )
    .await;
    let removed: i64 = ask(&mut redis, &["ZREM", SET, key.as_str()]).await;
    assert_eq!(removed, 1);
    assert_eq!(removal(&watchers[1], &key, due).await.lost, None);
}

/// An audit of many tasks takes longer than that, and begins anew if it is told that the server has changed.
#[tokio::test]
async fn the_audit_after_a_loss_is_requested_again_without_breaking_off_one_that_runs() {
    let (_server, mut redis, [watcher, _]) = two_watchers().await;
    let causes = || watcher.proposed.1.lock().unwrap().clone();
    let is_urgent = |cause: &Cause| *cause == Cause::RedisChanged;
    let urgent = || causes().into_iter().filter(is_urgent).count();
    let before = urgent();
    let () = ask(&mut redis, &["FLUSHALL"]).await;
    until("the loss is noticed", async || urgent() > before).await;
    let seen = causes().len();
    until("the mark is kept", async || {
        watcher.timer.audited(wall()).await;
        let words = ["ZRANGEBYSCORE", SET, "inf", "inf"];
        let marks: Vec<String> = ask(&mut redis.clone(), &words).await;
        marks.iter().any(|mark| mark.starts_with("#lapsed:kept:"))
    })
    .await;
    until_within(
        Duration::from_secs(60),
        "another audit is requested",
        async || causes().len() > seen,
    )
    .await;
    assert_eq!(causes()[seen..], [Cause::Interval]);
}

#[tokio::test]
async fn an_entry_that_the_first_look_of_all_has_read_is_removed_by_a_program() {
    let server = PrivateRedis::start().await.unwrap();
    let mut redis = server.connect(0).await.unwrap();
    let key = TaskKey::build("Job", "record", ["first"]).unwrap();
    let soon = (wall().0 / 1000 + 3_600).to_string();
    let _: i64 = ask(&mut redis, &["ZADD", SET, &soon, key.as_str()]).await;
    let watcher = Watcher::start(&server).await;
    let due = watcher.requested(&key).await;
    let read = watcher.proposed.read_at(&key);
    keep_marks(&mut redis, &watcher).await;
    let answer = Acknowledgement {
        key: key.clone(),
        requested: due,
        state: EntryState::Pending(due),
    };
    watcher.timer.acknowledge(&[answer]).await.unwrap();
    let removed: i64 = ask(&mut redis, &["ZREM", SET, key.as_str()]).await;
    assert_eq!(removed, 1);
    let missing = removal(&watcher, &key, due).await;
    assert!(missing.lost.is_some(), "the sets were new");
    assert!(!missing.is_unconfirmed(&row_of(due, read)), "{missing:?}");
}
