//! What the main path costs each time without any server: reading a name off the channel, finding what runs it,
//! judging how it went.

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use lapsed::handler::{Handlers, Router};
use lapsed::task::{Attempt, EndedRun, KeyName, Outcome, RetryPolicy, TaskKey, UnixMs, judge};
use lapsed::{Config, HandlerError};

/// Handlers and routes of a big daemon.
const TARGETS: usize = 20;

fn names(criterion: &mut Criterion) {
    let names: [(&str, &[u8]); 5] = [
        ("task", b"AuctionCutDown@auctionEndCutDown@4711"),
        (
            "task_of_five_arguments",
            b"Order@close@42@unpaid@2026@11@21",
        ),
        ("sentinel", b"#SILCK`7"),
        ("foreign", b"laravel_cache:users:4711:permissions"),
        ("garbage", b"\xff\xfe\x00\x80 no text at all \xc3\x28"),
    ];
    let mut group = criterion.benchmark_group("key_name");
    for (what, name) in names {
        group.bench_function(what, |bencher| {
            bencher.iter(|| KeyName::parse(black_box(name)));
        });
    }
    group.finish();
}

fn router(criterion: &mut Criterion) {
    let handlers = Router::new(registry(), &Config::default());
    let routes = Router::new(Handlers::new(), &twenty_routes());
    let key = |text| TaskKey::parse(text).expect("it is a key");
    let mut group = criterion.benchmark_group("router_find");
    let cases = [
        ("handler", &handlers, key("Class7@run@4711")),
        ("no_handler", &handlers, key("Stranger@run@4711")),
        ("first_of_20_routes", &routes, key("Class0@run@4711")),
        ("last_of_20_routes", &routes, key("Class19@run@4711")),
        ("none_of_20_routes", &routes, key("Stranger@run@4711")),
    ];
    for (what, router, key) in cases {
        assert_eq!(router.find(&key).is_some(), !what.starts_with("no"));
        group.bench_function(what, |bencher| {
            bencher.iter(|| router.find(black_box(&key)));
        });
    }
    group.finish();
}

fn registry() -> Handlers {
    let mut handlers = Handlers::new();
    for number in 0..TARGETS {
        handlers.on((&*format!("Class{number}"), "run"), |_: u64| async {
            Ok::<(), HandlerError>(())
        });
    }
    handlers
}

fn twenty_routes() -> Config {
    let routes = (0..TARGETS)
        .map(|number| format!("[[routes]]\nmatch = '^Class{number}@run(@|$)'\nlog = {{}}\n"));
    Config::from_toml(&routes.collect::<String>()).expect("the routes are sound")
}

fn judging(criterion: &mut Criterion) {
    let policy = RetryPolicy::default();
    let attempt = Attempt {
        number: 3,
        crashes: 0,
        max_attempts: None,
        since: UnixMs(1_000_000),
        snoozes: 0,
    };
    let outcomes = [
        ("succeeded", Outcome::Succeeded),
        (
            "timed_out",
            Outcome::TimedOut {
                after: Duration::from_secs(30),
            },
        ),
        (
            "panicked",
            Outcome::Panicked {
                message: "index out of bounds".to_owned(),
            },
        ),
    ];
    let mut group = criterion.benchmark_group("judge");
    for (what, outcome) in outcomes {
        group.bench_function(what, |bencher| {
            bencher.iter(|| {
                let run = EndedRun {
                    outcome: black_box(outcome.clone()),
                    result: None,
                    attempt,
                    started: UnixMs(999_000),
                    daemon: "bench",
                };
                judge(run, &policy, UnixMs(1_000_000), black_box(0.5))
            });
        });
    }
    group.finish();
}

criterion_group!(benches, names, router, judging);
criterion_main!(benches);
