//! Figures of the ledger in memory, whose clock stands still: to the millisecond, and where a limit cuts them off.

use std::time::Duration;

use lapsed::UnixMs;
use lapsed::ledger::memory::MemoryLedger;
use lapsed::ledger::{
    Admin as _, DetailedStats, DetailedStatsLimits, MethodStats, Pauses as _, Percentiles,
    Producer as _, Scans as _, Stats,
};
use lapsed::task::{TaskKey, Verdict};
use tokio::time::advance;

use crate::ledger_conformance::rig::{
    LEASE, SHORT_LEASE, bury, cancel, claim, create, create_at, retry_at, settle,
};

const START: UnixMs = UnixMs(1_795_291_200_000);

const ALL: DetailedStatsLimits = DetailedStatsLimits {
    rows: 100,
    entries: 100,
    dead: 100,
    done: 100,
};

fn key(method: &str, name: &str) -> TaskKey {
    TaskKey::build("Stats", method, [name]).unwrap()
}

fn of(method: &str) -> MethodStats {
    MethodStats {
        name: format!("Stats@{method}"),
        ..MethodStats::default()
    }
}

/// Unfinished rows by due time: one that is overdue, one that runs, one that waits, one that is due now, one that is not due
/// yet. One was cancelled while it ran, and runs, one ended so without its daemon. Two are dead, two are done, one is cancelled.
async fn ledger() -> MemoryLedger {
    let ledger = MemoryLedger::new(START);
    let now = UnixMs(START.0 + 10_000);
    for (name, lease) in [("cut off", SHORT_LEASE), ("stopping", LEASE)] {
        let arming = create(&ledger, &key("stop", name), -4_000).await;
        claim(&ledger, arming, lease).await.unwrap();
        cancel(&ledger, &key("stop", name)).await;
    }
    let mut done = Vec::new();
    for (name, ahead_ms) in [("done1", 9_950), ("done2", 9_850)] {
        done.push(create(&ledger, &key("end", name), ahead_ms).await);
    }
    advance(Duration::from_secs(10)).await;
    for arming in done {
        let claim = claim(&ledger, arming, LEASE).await.unwrap();
        settle(&ledger, &claim, Verdict::Complete).await;
    }
    for (name, ahead_ms) in [("late", -6_000), ("now", 0), ("ahead", 1)] {
        create(&ledger, &key("wait", name), ahead_ms).await;
    }
    let running = create(&ledger, &key("run", "1"), -5_000).await;
    claim(&ledger, running, LEASE).await.unwrap();
    for (method, name, due_ms, verdict) in [
        ("retry", "1", -4_000, retry_at(UnixMs(now.0 + 1))),
        ("end", "dead1", -3_000, bury()),
        ("end", "dead2", -2_000, bury()),
    ] {
        let arming = create(&ledger, &key(method, name), due_ms).await;
        let claim = claim(&ledger, arming, LEASE).await.unwrap();
        settle(&ledger, &claim, verdict).await;
    }
    create(&ledger, &key("end", "cancelled"), 60_000).await;
    cancel(&ledger, &key("end", "cancelled")).await;
    ledger
}

async fn stats(ledger: &MemoryLedger, limits: DetailedStatsLimits) -> DetailedStats {
    ledger.detailed_stats(limits).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn figures_within_their_limits_are_exact() {
    let ledger = ledger().await;
    let found = stats(&ledger, ALL).await;
    let counts = Stats {
        pending: 3,
        waiting: 1,
        running: 2,
        done: 2,
        dead: 2,
        cancelled: 2,
        overdue: 2,
        overdue_ms_max: 6_000,
        malformed: 0,
    };
    assert_eq!((found.counts, &found.at_least[..]), (counts, &[][..]));
    assert_eq!((found.methods_of, found.methods_of_dead), (None, None));
    let due_to_done = Percentiles {
        count: 2,
        p50_ms: 50,
        p99_ms: 150,
        max_ms: 150,
    };
    let methods = [
        MethodStats {
            dead: 2,
            due_to_done: Some(due_to_done),
            ..of("end")
        },
        MethodStats {
            waiting: 1,
            ..of("retry")
        },
        MethodStats {
            running: 1,
            ..of("run")
        },
        MethodStats {
            running: 1,
            ..of("stop")
        },
        MethodStats {
            pending: 3,
            overdue: 2,
            overdue_ms_max: 6_000,
            ..of("wait")
        },
    ];
    assert_eq!(found.methods, methods);
    // The retry is due.
    advance(Duration::from_millis(1)).await;
    let counts = stats(&ledger, ALL).await.counts;
    assert_eq!((counts.pending, counts.waiting), (4, 0));
}

/// A count that has reached its limit is a part; one below it is exact.
#[tokio::test(start_paused = true)]
async fn figures_at_their_limits_say_so() {
    let ledger = ledger().await;
    // There are 5 unfinished rows, and 2 that a cancellation has marked.
    for (rows, entries, at_least, counts) in [
        (6, 100, "", (3, 1, 2, 2, 2)),
        (6, 3, "", (3, 1, 2, 2, 2)),
        (6, 2, "done dead", (3, 1, 2, 2, 2)),
        (6, 1, "done dead cancelled", (3, 1, 2, 1, 2)),
        (5, 100, "waiting running", (3, 1, 2, 2, 2)),
        (5, 5, "pending waiting running", (3, 1, 2, 2, 2)),
        (5, 3, "pending waiting running overdue", (1, 1, 2, 2, 2)),
        // The row that is not read, and the one that waits, count as pending.
        (1, 100, "waiting running cancelled", (5, 0, 0, 2, 3)),
    ] {
        let limits = DetailedStatsLimits {
            rows,
            entries,
            ..ALL
        };
        let found = stats(&ledger, limits).await;
        let of = found.counts;
        let found_counts = (of.pending, of.waiting, of.running, of.done, of.overdue);
        assert_eq!(
            (found.at_least.join(" "), found_counts),
            (at_least.to_owned(), counts),
            "{limits:?}"
        );
        assert_eq!(found.methods_of, (rows < 6).then_some(rows));
    }
    for (dead, of_dead) in [(0, None), (1, Some(1)), (2, Some(2)), (3, None)] {
        let found = stats(&ledger, DetailedStatsLimits { dead, ..ALL }).await;
        assert_eq!(found.methods_of_dead, of_dead);
        assert_eq!(found.methods[0].dead, u64::from(dead.min(2)));
        assert_eq!(found.counts.dead, 2);
    }
}

#[tokio::test(start_paused = true)]
async fn no_task_is_said_to_wait_where_all_that_are_read_run() {
    let ledger = MemoryLedger::new(START);
    let arming = create(&ledger, &key("run", "1"), 0).await;
    claim(&ledger, arming, LEASE).await.unwrap();
    let found = stats(&ledger, DetailedStatsLimits { rows: 1, ..ALL }).await;
    assert_eq!(found.at_least, ["running"]);
}

#[tokio::test(start_paused = true)]
async fn a_task_whose_lease_has_run_out_is_pending_and_waits_for_nothing() {
    let ledger = MemoryLedger::new(START);
    let arming = create(&ledger, &key("run", "1"), 0).await;
    claim(&ledger, arming, LEASE).await.unwrap();
    let counts = async || {
        let of = stats(&ledger, ALL).await.counts;
        (of.pending, of.waiting, of.running)
    };
    advance(LEASE).await;
    assert_eq!(counts().await, (0, 0, 1));
    advance(Duration::from_millis(1)).await;
    assert_eq!(counts().await, (1, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn how_long_tasks_took_is_of_those_that_ended_within_the_hour_at_their_first_attempt() {
    let ledger = MemoryLedger::new(START);
    let done = async |name: &str, due: UnixMs, attempts: u16| {
        let key = key("end", name);
        let mut task = lapsed::ledger::NewTask::new(key, due);
        task.attempts = attempts;
        let arming = ledger.create(&[task]).await.unwrap()[0].arming;
        let claim = claim(&ledger, arming, LEASE).await.unwrap();
        settle(&ledger, &claim, Verdict::Complete).await;
    };
    done("1", UnixMs(START.0 - 700), 0).await;
    done("again", UnixMs(START.0 - 900), 1).await;
    let took = async || {
        let found = stats(&ledger, ALL).await;
        let methods = found.methods.first();
        methods.and_then(|of| of.due_to_done).map(|it| it.max_ms)
    };
    advance(Duration::from_secs(3_600)).await;
    assert_eq!(took().await, Some(0), "it was created when it was overdue");
    advance(Duration::from_millis(1)).await;
    assert_eq!(took().await, None);
}

#[tokio::test(start_paused = true)]
async fn the_time_that_the_oldest_task_is_overdue_is_that_of_one_that_does_not_run() {
    let ledger = MemoryLedger::new(START);
    for (name, due_ms) in [("1", -2_000), ("2", -1_500), ("3", 1)] {
        create_at(&ledger, &key("run", name), UnixMs(START.0 + due_ms)).await;
    }
    let overdue = async || ledger.overdue_for().await.unwrap().as_millis();
    assert_eq!(overdue().await, 2_000);
    let arming = create(&ledger, &key("run", "1"), -2_000).await;
    claim(&ledger, arming, LEASE).await.unwrap();
    assert_eq!(overdue().await, 1_500);
}

#[tokio::test(start_paused = true)]
async fn overdue_tasks_are_counted_before_a_time_and_up_to_a_limit() {
    let ledger = MemoryLedger::new(START);
    for (name, due_ms) in [("1", -2), ("2", -1), ("3", 0)] {
        create_at(&ledger, &key("run", name), UnixMs(START.0 + due_ms)).await;
    }
    for (before_ms, limit, count) in [(0, 10, 2), (1, 10, 3), (-2, 10, 0), (0, 1, 1)] {
        let before = UnixMs(START.0 + before_ms);
        let counted = ledger.count_overdue(before, limit).await.unwrap();
        assert_eq!(counted, count, "{before_ms} {limit}");
    }
}

#[tokio::test(start_paused = true)]
async fn leases_are_found_after_a_place() {
    let ledger = MemoryLedger::new(START);
    let mut armings = Vec::new();
    for (name, due_ms) in [("1", -2), ("2", -1)] {
        let arming = create(&ledger, &key("run", name), due_ms).await;
        claim(&ledger, arming, LEASE).await.unwrap();
        armings.push(arming);
    }
    let first = Some((armings[0].due, armings[0].row));
    let page = ledger.scan_leases(first, Duration::ZERO).await.unwrap();
    let rows: Vec<u64> = page.leases.iter().map(|lease| lease.row).collect();
    assert_eq!((rows, page.next), (vec![armings[1].row], None));
}
