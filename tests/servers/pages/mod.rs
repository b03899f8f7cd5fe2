//! Readers who follow the pages of the documentation to the letter: each page is a test, which types its commands, saves its
//! files, sends its SQL, and compares what is printed.
//!
//! `snapshots/pages.txt` lists what becomes of every block of code.

mod block;
mod machine;
mod printed;
mod reader;

use std::collections::BTreeMap;

use self::block::blocks;
use self::reader::Page;
use crate::support::snapshot::assert_snapshot;

const WEBHOOK_KEY: (&str, &str) = ("webhook.key", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");

/// A reader who has Redis and MySQL.
const SERVERS: (&str, &str) = (
    "lapsed.toml",
    "redis.url = 'redis://127.0.0.1:6379/0'\nledger.url = 'mysql://root@127.0.0.1:3306/lapsed_try'\n",
);

/// Also a route.
const LOGGED: (&str, &str) = (
    "lapsed.toml",
    "redis.url = 'redis://127.0.0.1:6379/0'\nledger.url = 'mysql://root@127.0.0.1:3306/lapsed_try'\n\
     [[routes]]\nmatch = '.'\nlog = {}\n",
);

macro_rules! pages {
    ($($name:ident: $page:expr;)*) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                $page.read().await;
            }
        )*

        /// The pages that are read.
        const PAGES: &[Page] = &[$($page),*];
    };
}

pages! {
    readme: Page {
        programs: &[("cargo", "[ \"$*\" = 'install --locked --path src/cli' ] # this test has built it")],
        ..Page::new("README.md")
    };
    quickstart_php: Page::new("docs/quickstart-php.md");
    quickstart_node: Page::new("docs/quickstart-node.md");
    quickstart_python: Page::new("docs/quickstart-python.md");
    scheduling: Page {
        files: &[LOGGED, ("tasks.ndjson", r#"{"key": "Order@close@7", "in": "30m"}"#)],
        before: "lapsed migrate\nlapsed listen",
        ..Page::new("docs/scheduling.md")
    };
    timers: Page {
        files: &[LOGGED],
        before: "lapsed migrate
            lapsed listen
            lapsed schedule Order@close@1 --in 8s
            lapsed schedule Order@close@2 --in 9s
            redis-cli SETEX Order@close@3 10 ''
            until lapsed show Order@close@3; do sleep 0.1; done",
        first: &[("lapsed rearm", "sed -i '1i timer = \"sorted_set\"' lapsed.toml")],
        then: "until [ $(lapsed list --state done | grep -c ' Order@close@') = 3 ]; do sleep 0.1; done",
        ..Page::new("docs/timers.md")
    };
    moving: Page {
        files: &[("lapsed.toml", "timer = 'ledger_poll'\nledger.url = 'sqlite://./lapsed.db'\n")],
        before: "lapsed migrate
            lapsed listen
            lapsed schedule Order@close@1 --in 1h
            lapsed schedule Order@close@2 --in 8s",
        means: &[("lapsed:secret@127.0.0.1:3306/shop", "root@127.0.0.1:3306/lapsed_try")],
        then: "lapsed --config new.toml listen
            until lapsed --config new.toml list --state done | grep ' Order@close@2 '; do sleep 0.1; done
            lapsed --config new.toml list --state pending | grep ' Order@close@1 '",
        ..Page::new("docs/moving.md")
    };
    time_wheel: Page {
        files: &[SERVERS, ("send-msg.php", "<?php file_put_contents('ran', stream_get_contents(STDIN));")],
        before: "lapsed migrate
            lapsed doctor",
        then: "redis-cli RPUSH task_$(( ($(date +%s) + 3) % 3600 )) '{\"method\":\"send_msg\",\"params\":[7],\"cycle_num\":0}'
            until grep '\"payload\":\\[7\\]' ran; do sleep 0.1; done",
        ..Page::new("docs/coming-from/time-wheel.md")
    };
    sorted_set: Page {
        files: &[SERVERS, ("order-timeout.php", "<?php file_put_contents('ran', $argv[1]);")],
        then: "lapsed migrate
            lapsed doctor
            redis-cli ZADD order $(( $(date +%s) + 3 )) 42
            lapsed listen
            until grep 42 ran; do sleep 0.1; done",
        ..Page::new("docs/coming-from/sorted-set.md")
    };
    sorted_set_and_table: Page {
        files: &[SERVERS],
        before: "mariadb -h127.0.0.1 -uroot lapsed_try -e 'CREATE TABLE delay_queue (status INT, created TIMESTAMP)'",
        ..Page::new("docs/coming-from/sorted-set-and-table.md")
    };
    benchmark: Page::new("docs/benchmark.md");
    jobs_table: Page::new("docs/coming-from/jobs-table.md");
    asynq: Page {
        files: &[WEBHOOK_KEY],
        means: &[("/etc/lapsed/", "")],
        ..Page::new("docs/coming-from/asynq.md")
    };
    celery: Page::new("docs/coming-from/celery.md");
    sidekiq: Page {
        files: &[WEBHOOK_KEY],
        means: &[("/etc/lapsed/", "")],
        ..Page::new("docs/coming-from/sidekiq.md")
    };
    resp: Page {
        files: &[SERVERS],
        before: "lapsed migrate
            lapsed listen",
        first: &[("[[resp.users]]", "printf %s 'a long password' | lapsed hash-password > shop.hash")],
        means: &[("/run/secrets/", "")],
        ..Page::new("docs/resp.md")
    };
    pull_workers: Page {
        files: &[SERVERS],
        before: "lapsed migrate
            lapsed listen",
        ..Page::new("docs/pull-workers.md")
    };
    http: Page {
        before: "lapsed dev",
        ..Page::new("docs/http.md")
    };
    recurring: Page {
        files: &[LOGGED],
        before: "lapsed migrate",
        first: &[("recurring task started", "lapsed listen")],
        ..Page::new("docs/recurring.md")
    };
    operations: Page {
        files: &[LOGGED],
        before: "lapsed migrate
            lapsed listen
            until curl -fsS http://127.0.0.1:8787/readyz; do sleep 0.1; done",
        ..Page::new("docs/operations.md")
    };
    flow_control: Page {
        files: &[LOGGED],
        before: "lapsed migrate
            lapsed schedule Mail@send@1 --in 0s
            lapsed schedule Order@close@1 --in 0s
            lapsed schedule Order@close@2 --in 1h",
        ..Page::new("docs/flow-control.md")
    };
    alerts: Page {
        files: &[("chat-url", "https://hooks.example/services/1")],
        means: &[("/run/secrets/", "")],
        ..Page::new("docs/alerts.md")
    };
    access: Page::new("docs/access.md");
    from_php_listener: Page {
        files: &[LOGGED],
        programs: &[("systemctl", "[ \"$*\" != 'start lapsed' ] || lapsed listen >/dev/null 2>&1 </dev/null &")],
        ..Page::new("docs/from-php-listener.md")
    };
}

/// Pages whose blocks nobody has followed yet.
const UNREAD: &[&str] = &[
    "docs/http-access.md",
    "docs/import.md",
    "docs/middleware.md",
    "docs/otel.md",
    "docs/pausing.md",
    "docs/retention.md",
    "docs/retries-and-dead-letters.md",
    "docs/setups.md",
    "docs/targets.md",
    "docs/tasks.md",
    "docs/testing.md",
    "docs/transactions.md",
    "docs/troubleshooting.md",
];

/// The pages with code that are for users, without the design and the decision records.
fn all_pages() -> Vec<String> {
    let directories = ["docs", "docs/coming-from"].map(|name| (name, block::root().join(name)));
    let names = |(name, path): (&str, std::path::PathBuf)| {
        let entries = std::fs::read_dir(path).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let pages = names.filter(|name| name.ends_with(".md"));
        pages
            .map(|page| format!("{name}/{page}"))
            .collect::<Vec<_>>()
    };
    let mut pages: Vec<String> = directories.into_iter().flat_map(names).collect();
    pages.push("README.md".to_owned());
    pages.sort();
    pages
}

#[test]
fn every_block_of_a_page_is_run_or_listed_with_its_reason() {
    let mut lines = Vec::new();
    for page in all_pages() {
        if UNREAD.contains(&page.as_str()) {
            lines.push(format!("{page}: NOT READ"));
            continue;
        }
        let mut uses = BTreeMap::new();
        for block in blocks(&page) {
            *uses.entry(block.summary()).or_insert(0) += 1;
        }
        let is_read = uses.is_empty() || PAGES.iter().any(|read| read.path == page);
        assert!(is_read, "{page} has code, and no test here reads it");
        lines.extend(
            uses.into_iter()
                .map(|(summary, count)| format!("{summary}, {count}")),
        );
    }
    let not_run = lines.iter().filter(|line| line.contains("NOT R"));
    println!(
        "{} lines of {} are about blocks that are not run",
        not_run.count(),
        lines.len()
    );
    assert_snapshot("pages", lines);
}
