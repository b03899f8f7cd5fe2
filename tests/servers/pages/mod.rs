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

/// A reader who has Redis and MySQL, and a route.
const LOGGED: (&str, &str) = (
    "lapsed.toml",
    "redis.url = 'redis://127.0.0.1:6379/0'\nledger.url = 'mysql://root@127.0.0.1:3306/lapsed_try'\n\
     [[routes]]\nmatch = '^Order@'\nlog = {}\n",
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
    from_php_listener: Page {
        files: &[LOGGED],
        programs: &[("systemctl", "[ \"$*\" != 'start lapsed' ] || lapsed listen >/dev/null 2>&1 </dev/null &")],
        ..Page::new("docs/from-php-listener.md")
    };
}

/// Pages whose blocks nobody has followed yet.
const UNREAD: &[&str] = &[
    "docs/access.md",
    "docs/alerts.md",
    "docs/benchmark.md",
    "docs/coming-from/asynq.md",
    "docs/coming-from/celery.md",
    "docs/coming-from/jobs-table.md",
    "docs/coming-from/sidekiq.md",
    "docs/coming-from/sorted-set-and-table.md",
    "docs/coming-from/sorted-set.md",
    "docs/coming-from/time-wheel.md",
    "docs/flow-control.md",
    "docs/http-access.md",
    "docs/http.md",
    "docs/import.md",
    "docs/middleware.md",
    "docs/moving.md",
    "docs/operations.md",
    "docs/otel.md",
    "docs/pausing.md",
    "docs/pull-workers.md",
    "docs/recurring.md",
    "docs/resp.md",
    "docs/retention.md",
    "docs/retries-and-dead-letters.md",
    "docs/setups.md",
    "docs/targets.md",
    "docs/tasks.md",
    "docs/testing.md",
    "docs/timers.md",
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
