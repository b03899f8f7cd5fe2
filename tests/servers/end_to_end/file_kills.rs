//! What a daemon on a file has answered holds though it is killed right afterwards: pauses, series, retries, dead letters,
//! tags, unique keys, claims of workers, retention.

use std::collections::BTreeSet;

use lapsed::rusqlite::{Connection, params};
use serde_json::Value;

use super::embedded::Embedded;
use crate::support::process::Process;
use crate::support::resp_wire::{Reply, Wire};
use crate::support::wait::{DEADLINE, until};

/// A daemon on a file, its RESP server, and how to kill it.
struct Served {
    place: Embedded,
    daemon: Process,
    wire: Wire,
}

impl Served {
    async fn with(settings: &str) -> Self {
        let place = Embedded::with(settings);
        let (daemon, wire) = place.serve().await;
        Self {
            place,
            daemon,
            wire,
        }
    }

    /// SIGKILL, and the next daemon.
    async fn kill(&mut self) {
        self.daemon.kill();
        (self.daemon, self.wire) = self.place.serve().await;
    }

    fn ask(&mut self, words: &str) -> Reply {
        let words: Vec<&str> = words.split(' ').collect();
        self.wire.ask(&words)
    }

    fn accepts(&mut self, words: &str) {
        let answer = self.ask(words);
        assert!(
            matches!(&answer, Reply::Simple(_) | Reply::Integer(_)),
            "{words}: {answer:?}"
        );
    }

    /// A command of the program that succeeds.
    fn says(&self, words: &str) -> String {
        let words: Vec<&str> = words.split(' ').collect();
        let (code, stdout, stderr) = self.place.run(&words);
        assert_eq!(code, 0, "{words:?}: {stderr}");
        stdout
    }

    fn show(&self, key: &str) -> Value {
        self.place.json(&["show", key])
    }

    fn state(&self, key: &str) -> String {
        self.show(key)["state"].as_str().unwrap().to_owned()
    }

    async fn until_state(&self, key: &str, state: &str) {
        until(format!("`{key}` is {state}"), async || {
            self.state(key) == state
        })
        .await;
    }

    fn ran(&self, key: &str) -> usize {
        self.place.ran().iter().filter(|ran| *ran == key).count()
    }

    async fn until_ran(&self, key: &str, times: usize) {
        until(format!("`{key}` has run {times} times"), async || {
            self.ran(key) >= times
        })
        .await;
    }

    /// Takes one task. Returns its claim and the number of its attempt.
    fn take(&mut self) -> (String, i64) {
        let Reply::Array(mut taken) = self.ask("LAPSED.TAKE mail BLOCK 60000") else {
            panic!("no tasks");
        };
        let Reply::Array(members) = taken.remove(0) else {
            panic!("no map");
        };
        let member = |name: &str| {
            let pairs = members.chunks(2);
            let mut found = pairs.filter(|pair| pair[0] == Reply::Bulk(name.into()));
            found.next().expect(name)[1].clone()
        };
        match (member("claim"), member("attempt")) {
            (Reply::Bulk(claim), Reply::Integer(attempt)) => {
                (String::from_utf8(claim).unwrap(), attempt)
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_pause_and_a_resume_survive_kills() {
    let mut served = Served::with("").await;
    for (scope, key) in [("Job", "Job@record@1"), ("Job@record", "Job@record@2")] {
        served.says(&format!("pause {scope}"));
        served.kill().await;
        served.accepts(&format!("SETEX {key} 1 x"));
        served.accepts("SETEX Job@record@marker 1 x");
        until("the tasks are overdue", async || {
            served.place.json(&["stats"])["overdue"] == 2
        })
        .await;
        served.kill().await;
        served.accepts("DEL Job@record@marker");
        assert_eq!(served.ran(key), 0);
        assert_eq!(served.show(key)["kept_back"], "paused");
        served.says(&format!("resume {scope}"));
        served.kill().await;
        served.until_state(key, "done").await;
    }
    assert_eq!(served.place.ran(), ["Job@record@1", "Job@record@2"]);
}

/// Each occurrence runs though daemons are killed; a changed schedule and a cancellation hold.
#[tokio::test]
async fn a_series_goes_on_and_its_change_and_its_end_hold() {
    const KEY: &str = "Job@record@series";
    let mut served = Served::with("").await;
    served.says(&format!(
        "schedule {KEY} --in 100ms --every 1s --catch-up all"
    ));
    let mut dues = BTreeSet::new();
    for times in [1, 3, 5] {
        served.until_ran(KEY, times).await;
        dues.insert(served.show(KEY)["due"].as_str().unwrap().to_owned());
        served.kill().await;
    }
    assert_eq!(dues.len(), 3, "it goes on: {dues:?}");

    served.accepts(&format!("LAPSED.SCHEDULE {KEY} IN 3600000 EVERY 7000"));
    served.kill().await;
    let ran = served.ran(KEY);
    let changed = served.says(&format!("show {KEY}"));
    assert!(changed.contains("every 7s"), "{changed}");
    served.accepts("SETEX Job@record@marker 1 x");
    served.until_ran("Job@record@marker", 1).await;
    assert_eq!(served.ran(KEY), ran, "it is due in an hour");

    assert_eq!(served.ask(&format!("DEL {KEY}")), Reply::Integer(1));
    served.kill().await;
    assert_eq!(served.state(KEY), "cancelled");
}

/// How many of them run is checked by `recurring::catch_up`.
#[tokio::test]
async fn a_cron_expression_goes_on_after_a_kill_and_missed_occurrences_are_dealt_with() {
    const MISSED: i64 = 5;
    let mut served = Served::with("").await;
    let all = ["skip", "once", "all"];
    let key = |catch_up: &str| format!("Job@record@{catch_up}");
    for catch_up in all {
        let words = ["schedule", &key(catch_up), "--cron", "* * * * * *"];
        let words = [&words[..], &["--catch-up", catch_up]].concat();
        let (code, _, stderr) = served.place.run(&words);
        assert_eq!(code, 0, "{stderr}");
    }
    for catch_up in all {
        served.until_ran(&key(catch_up), 1).await;
    }
    served.daemon.kill();
    let before = all.map(|catch_up| served.ran(&key(catch_up)));
    let back = lapsed::clock::wall().0 + MISSED * 1_000;
    until("some occurrences were missed", async || {
        lapsed::clock::wall().0 >= back
    })
    .await;
    (served.daemon, served.wire) = served.place.serve().await;
    let skipped = "occurrences were missed and are skipped";
    served.daemon.until_logged(skipped).await;
    for (catch_up, before) in all.into_iter().zip(before) {
        let more = if catch_up == "all" { MISSED } else { 2 };
        served
            .until_ran(&key(catch_up), before + more as usize)
            .await;
    }
}

#[tokio::test]
async fn retries_redrives_and_discards_survive_kills() {
    const KEY: &str = "Job@fails@1";
    let retry = "retry = { ladder = ['200ms'], max_attempts = 3, jitter = 0.0 }";
    let mut served = Served::with(retry).await;
    served.accepts(&format!("SETEX {KEY} 1 x"));
    served.until_ran(KEY, 1).await;
    served.kill().await;
    served.until_state(KEY, "dead").await;
    let dead = served.show(KEY);
    // The daemon may have been killed before it had written how the first attempt ended.
    assert!(served.ran(KEY) <= 4, "{dead}");
    assert_eq!(dead["attempt"], 3, "{dead}");
    served.kill().await;
    let ran = served.ran(KEY);
    served.says(&format!("redrive {KEY}"));
    served.kill().await;
    served.until_ran(KEY, ran + 1).await;
    served.until_state(KEY, "dead").await;

    let ran = served.ran(KEY);
    served.says("redrive --state dead --class Job");
    served.kill().await;
    served.until_ran(KEY, ran + 1).await;
    served.until_state(KEY, "dead").await;

    served.says(&format!("discard {KEY}"));
    served.kill().await;
    let (code, _, stderr) = served.place.run(&["redrive", KEY]);
    assert_eq!(code, 1, "{stderr}");
    assert_eq!(served.says("list --state dead").lines().count(), 1);
}

#[tokio::test]
async fn cancellation_by_tag_and_unique_keys_survive_kills() {
    let mut served = Served::with("").await;
    for number in 0..50 {
        let (tag, after) = match number % 5 {
            0 => ("keep", 2_000),
            _ => ("drop", 3_600_000),
        };
        served.accepts(&format!(
            "LAPSED.SCHEDULE Job@record@{number} IN {after} TAG {tag}"
        ));
    }
    let answer = served.says("cancel --tag drop");
    assert!(answer.starts_with("40 cancelled, 0 running"), "{answer}");
    served.kill().await;
    let made = served.ask("LAPSED.SCHEDULE Job@record@one IN 3600000 IFPENDING refuse");
    served.kill().await;
    let refused = served.ask("LAPSED.SCHEDULE Job@record@one IN 1 IFPENDING refuse");
    assert!(
        !matches!(refused, Reply::Integer(_)),
        "it is pending: {refused:?}"
    );
    let kept = served.ask("LAPSED.SCHEDULE Job@record@one IN 1 IFPENDING keep");
    assert_eq!(kept, made);
    served.accepts("LAPSED.SCHEDULE Job@record@one IN 1 IFPENDING move");
    served.kill().await;
    until("nothing is pending", async || {
        let stats = served.place.json(&["stats"]);
        stats["pending"] == 0 && stats["running"] == 0
    })
    .await;
    let ran: BTreeSet<String> = served.place.ran().into_iter().collect();
    let kept = (0..10).map(|n| format!("Job@record@{}", n * 5));
    let expected = kept.chain(["Job@record@one".to_owned()]).collect();
    assert_eq!(ran, expected);
    // It is not pending any more: asked for again, it runs again.
    let times = served.ran("Job@record@one");
    served.accepts("LAPSED.SCHEDULE Job@record@one IN 1 IFPENDING refuse");
    served.until_ran("Job@record@one", times + 1).await;
}

#[tokio::test]
async fn answers_to_workers_survive_kills() {
    const KEY: &str = "Mail@send@1";
    let queue = "retry = { ladder = ['100ms'], jitter = 0.0 }\n[[routes]]\nmatch = '^Mail@'\n\
                 pull = { queue = 'mail', visibility = '60s' }";
    let mut served = Served::with(queue).await;
    served.accepts(&format!("SETEX {KEY} 1 x"));
    let (claim, attempt) = served.take();
    assert_eq!(attempt, 1);
    served.accepts(&format!("LAPSED.SNOOZE {claim} 100"));
    served.kill().await;
    let (claim, attempt) = served.take();
    assert_eq!(attempt, 1, "a snooze counts no attempt");
    served.kill().await;
    served.accepts(&format!("LAPSED.RENEW {claim}"));
    served.accepts(&format!("LAPSED.FAIL {claim} oops"));
    served.kill().await;
    let (next, attempt) = served.take();
    assert_eq!(attempt, 2);
    let fenced = served.ask(&format!("LAPSED.DONE {claim}"));
    assert!(
        matches!(&fenced, Reply::Error(text) if text.starts_with("FENCED")),
        "{fenced:?}"
    );
    served.accepts(&format!("LAPSED.RELEASE {next}"));
    served.kill().await;
    let (claim, attempt) = served.take();
    assert_eq!(attempt, 2, "a release counts no attempt");
    served.daemon.kill();
    (served.daemon, served.wire) = served.place.serve().await;
    served.accepts(&format!("LAPSED.DONE {claim} RESULT {{}}"));
    served.kill().await;
    assert_eq!(served.state(KEY), "done");
    // Repeated, it is answered as before.
    served.accepts(&format!("LAPSED.DONE {claim} RESULT {{}}"));
}

#[tokio::test]
async fn retention_deletes_what_is_finished_and_old_and_nothing_else() {
    const EACH: i64 = 300;
    let mut served = Served::with("retention = { done = '15m', dead = '15m', rate = 100 }").await;
    let now = lapsed::clock::wall().0;
    let (old, young) = (now - 7_200_000, now - 60_000);
    let file = Connection::open(served.place.path("lapsed.db")).unwrap();
    file.busy_timeout(DEADLINE).unwrap();
    for (kind, status, due, finished) in [
        ("done_old", 1, old, Some(old)),
        ("done_young", 1, old, Some(young)),
        ("dead_old", 2, old, Some(old)),
        ("dead_young", 2, old, Some(young)),
        ("cancelled_old", 3, old, Some(old)),
        ("pending_old", 0, old, None),
    ] {
        let rows = "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < ?1) \
                    INSERT INTO tb_time_limit_task (key, status, start_time, end_time, finished_at) \
                    SELECT 'Kept@' || ?2 || '@' || n, ?3, ?4, ?4, ?5 FROM n";
        file.execute(rows, params![EACH, kind, status, due, finished])
            .unwrap();
    }
    let left = || {
        let kinds = "SELECT substr(key, 6, instr(substr(key, 6), '@') - 1) AS kind, count(*) \
                     FROM tb_time_limit_task GROUP BY kind ORDER BY kind";
        let mut statement = file.prepare(kinds).unwrap();
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
        let rows: Result<Vec<(String, i64)>, _> = rows.unwrap().collect();
        rows.unwrap()
    };
    // In the middle of its work.
    until("some are deleted", async || {
        left().iter().map(|(_, count)| count).sum::<i64>() < 6 * EACH
    })
    .await;
    served.kill().await;
    until("what is old is deleted", async || left().len() == 4).await;
    let kept = ["cancelled_old", "dead_young", "done_young", "pending_old"];
    assert_eq!(left(), kept.map(|kind| (kind.to_owned(), EACH)));
}

#[tokio::test]
async fn payloads_up_to_the_limit_are_run_and_longer_ones_are_refused() {
    let mut served = Served::with("").await;
    let longest = "\"".repeat(65_536);
    let refused = served
        .wire
        .ask(&["SETEX", "Job@record@1", "1", &format!("{longest}x")]);
    assert!(
        matches!(&refused, Reply::Error(text) if text.contains("expected at most 65536")),
        "{refused:?}"
    );
    assert_eq!(served.ask("EXISTS Job@record@1"), Reply::Integer(0));
    let taken = served.wire.ask(&["SETEX", "Job@record@1", "1", &longest]);
    assert_eq!(taken, Reply::Simple("OK".to_owned()));
    served.kill().await;
    served.until_state("Job@record@1", "done").await;
    assert_eq!(served.ran("Job@record@1"), 1);
}
