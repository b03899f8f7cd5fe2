//! Every page: it shows what it is for, in both languages and in all views.

use serde_json::{Value, json};

use crate::browser::Browser;
use crate::daemon::Daemon;

/// Routes that succeed, fail in three ways, and wait for workers; and two recurring tasks.
const SETTINGS: &str = r#"
engine = { concurrency = 32 }
retry = { ladder = ["1h"] }
[[routes]]
match = '^Mail@send(@|$)'
pull = { queue = "mail", visibility = "30s" }
[[routes]]
match = '^Order@(close|ship)(@|$)'
log = {}
[[routes]]
match = '^Report@'
log = {}
[[routes]]
match = '^Invoice@charge(@|$)'
exec = ["sh", "-c", "echo \"card of customer $1 was refused: code 51\" >&2; exit 65", "sh", "{key}"]
[[routes]]
match = '^Import@file(@|$)'
exec = ["sh", "-c", "echo 'cannot connect to 10.0.0.7:21: connection refused' >&2; exit 1"]
[[recurring]]
key = "Report@daily@sales"
cron = "0 9 * * Mon-Fri"
tz = "Europe/Berlin"
[[recurring]]
key = "Report@heartbeat"
every = "15m"
"#;

/// The pages of the navigation, with a text that each shows.
const PAGES: [(&str, &str, &str); 10] = [
    ("overview", "/", "Tasks by state"),
    ("upcoming", "/upcoming", "Order@ship@3"),
    ("tasks", "/tasks", "Order@ship@3"),
    ("dead", "/dead", "was refused"),
    ("recurring", "/recurring", "Report@daily@sales"),
    ("pauses", "/pauses", "stock is counted"),
    ("queues", "/queues", "mail"),
    ("daemons", "/daemons", "this one"),
    ("doctor", "/doctor", "checks passed"),
    ("audit", "/audit", "Audit log"),
];

/// A daemon with something of everything.
async fn busy() -> Daemon {
    let daemon = Daemon::start(SETTINGS);
    let at = |key: String, delay: &str| json!({"key": key, "in": delay});
    let tasks = (0..12).flat_map(|n| {
        [
            at(format!("Invoice@charge@{n}"), "0s"),
            at(format!("Import@file@{n}"), "0s"),
            at(format!("Order@close@{n}"), "0s"),
            at(format!("Order@ship@{n}"), &format!("{}m", 1 + n * n)),
            at(format!("Mail@send@{n}"), "0s"),
        ]
    });
    let tagged =
        json!({"key": "Order@ship@tagged", "in": "3h", "tag": "shop-7", "payload": {"sku": 12}});
    daemon.schedule(tasks.chain([tagged]));
    daemon.run(&["pause", "Stock", "--reason", "stock is counted"]);
    daemon.until_listed("dead", 12).await;
    daemon.until_listed("done", 12).await;
    daemon
}

#[tokio::test]
async fn every_page_shows_what_it_is_for() {
    let daemon = busy().await;
    let browser = Browser::open(&daemon, "/").await;
    for (name, path, text) in PAGES {
        browser.go(path).await;
        browser.shows(text).await;
        if path == "/" {
            // What is wrong, and where to go.
            let said = "No worker asks any daemon for the queue `mail`";
            browser.shows(said).await;
            browser.shows("Show queues").await;
        }
        browser.picture(name).await;
    }
    let linked = browser.get(LINKS).await;
    let paths = PAGES.map(|(_, path, _)| Value::from(path));
    let linked = linked.as_array().unwrap();
    for path in &paths {
        assert!(linked.contains(path), "no link to {path} in {linked:?}");
    }
    for path in linked {
        let is_known = paths.contains(path) || path == "/schedule";
        assert!(is_known, "{path} has no picture");
    }
    browser.go("/task?key=Order%40ship%40tagged").await;
    browser.shows("shop-7").await;
    browser.picture("task").await;
    browser.go("/schedule").await;
    browser.picture("schedule").await;
    browser.close().await;
}

/// The paths of the navigation.
const LINKS: &str = "return [...document.querySelectorAll('.places a')].map(link => link.pathname)";

#[tokio::test]
async fn every_page_is_in_chinese() {
    let daemon = busy().await;
    let browser = Browser::open_in("zh-CN", &daemon, "/").await;
    for (name, path, _) in PAGES {
        browser.go(path).await;
        assert_eq!(
            browser.get("return document.documentElement.lang").await,
            "zh-CN"
        );
        let title = browser.text_of("h1").await;
        assert!(!title.is_ascii(), "{path} says `{title}`");
        browser.picture(&format!("{name}-zh")).await;
    }
    browser.close().await;
}

#[tokio::test]
async fn reading_needs_no_javascript() {
    let daemon = busy().await;
    let browser = Browser::open(&daemon, "/").await;
    browser.switch_scripts_off().await;
    for (_, path, text) in PAGES {
        browser.go(path).await;
        browser.shows(text).await;
    }
    browser.close().await;
}

#[tokio::test]
async fn an_archived_task_is_found_shown_and_offers_no_action() {
    let settings =
        "retention = { done = '7d', archive = true }\n[[routes]]\nmatch = '^Order@'\nlog = {}";
    let daemon = Daemon::start(settings);
    daemon.schedule((0..3).map(|n| json!({"key": format!("Order@close@{n}"), "in": "0s"})));
    daemon.until_listed("done", 3).await;
    daemon.run(&["prune", "--older-than", "0s"]);
    let browser = Browser::open(&daemon, "/tasks").await;
    browser.click(".tabs a", "Archived").await;
    browser.shows("Order@close@1").await;
    browser.shows("Archived tasks can only be read.").await;
    browser.picture("archive").await;
    browser.click("a", "Order@close@1").await;
    browser.shows("Archived: retention has moved it here").await;
    let actions = "return document.querySelectorAll('[data-act]').length";
    assert_eq!(browser.get(actions).await, 0);
    browser.picture("archived-task").await;
    // By its key alone, as the search finds it.
    browser.go("/task?key=Order%40close%402").await;
    browser.shows("Archived: retention has moved it here").await;
    assert_eq!(browser.get(actions).await, 0);
    browser.close().await;
}
