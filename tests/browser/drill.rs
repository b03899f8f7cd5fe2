//! An operator's drill: eight incidents. In each, the first screen names the cause, and what it offers cures it, or leads to
//! what is to be done where no page can do it.
//!
//! On a machine of its own it does so within five seconds: `LAPSED_DRILL_SECONDS=5` demands that. Without it, a slow machine
//! is no failure.

use std::cell::RefCell;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::timeout;

use crate::browser::Browser;
use crate::daemon::{Daemon, Servers};
use crate::support::faked_clock::FakedClock;
use crate::support::wait::{DEADLINE, until, until_within};

/// How long an operator waits for a page that names the cause.
fn patience() -> Duration {
    let seconds = std::env::var("LAPSED_DRILL_SECONDS");
    seconds.map_or(DEADLINE, |text| Duration::from_secs(text.parse().unwrap()))
}

/// Tasks of `Push` and `Mail` are pulled, those of `Slow` start one after the other, and run as long as the
/// daemon. Once a minute has ended in which tasks started late, that is a warning for five minutes, so no limit is set.
const SETTINGS: &str = r#"
alerts.overdue = "4s"
alerts.late = "none"
[[routes]]
match = '^Shop@'
log = {}
[[routes]]
match = '^Mail@'
pull = { queue = "mail", visibility = "1s" }
[[routes]]
match = '^Push@'
pull = { queue = "push" }
[[routes]]
match = '^Slow@'
exec = ["sh", "-c", "while kill -0 $PPID; do sleep 1; done"]
concurrency = 1
"#;

/// The headline of the first screen.
const HEADLINE: &str = ".verdict h1";

/// What is said below it.
const ADVICE: &str = ".verdict .lead";

/// Tasks that are due now.
fn due(class_method: &str, count: usize) -> impl Iterator<Item = Value> {
    let key = format!("{class_method}@");
    (0..count).map(move |n| json!({"key": format!("{key}{n}"), "in": "0s"}))
}

/// The operator is called, and looks at the first screen: it names the cause.
async fn named(browser: &Browser, selector: &str, cause: &str) {
    says_within(patience(), browser, selector, cause).await;
}

async fn says_within(patience: Duration, browser: &Browser, selector: &str, cause: &str) {
    let said = RefCell::new(String::new());
    let what = format!("the first screen says `{cause}`");
    let names = until_within(DEADLINE * 2, what, async || {
        let text = browser.text_of(selector).await;
        let is_named = text.contains(cause);
        said.replace(text);
        is_named
    });
    if timeout(patience, names).await.is_err() {
        panic!(
            "after {patience:?} it does not say `{cause}`, but: {}",
            said.borrow()
        );
    }
}

/// Waits until tasks have been overdue for so long that somebody is called.
async fn until_red(daemon: &Daemon, of: &str) {
    until("an operator is called", async || {
        let stats = daemon.run(&["--json", "stats"]);
        let stats: Value = serde_json::from_str(&stats).unwrap();
        let methods = stats["methods"].as_array().unwrap();
        let late = methods
            .iter()
            .filter(|it| it["overdue_ms_max"].as_u64() > Some(6_000));
        late.into_iter().any(|it| it["name"].as_str() == Some(of))
    })
    .await;
}

async fn is_well(browser: &Browser) {
    says_within(DEADLINE, browser, HEADLINE, "All is well").await;
}

#[tokio::test]
async fn the_database_is_gone() {
    let mut servers = Servers::start().await;
    let daemon = servers.listen("").await;
    let browser = Browser::open(&daemon, "/").await;
    is_well(&browser).await;
    browser.expect_in_console("Failed to load resource");
    servers.maria.kill();
    // Nothing is pressed: the page that is open says it, and so does one that is opened now.
    named(&browser, HEADLINE, "The ledger does not answer").await;
    browser.go("/tasks").await;
    named(&browser, "main", "The ledger does not answer since").await;
    browser.go("/").await;
    named(&browser, HEADLINE, "The ledger does not answer since").await;
    named(&browser, ADVICE, "Check the database server").await;
    named(&browser, ".verdict", "Show the checks").await;
    browser.picture("drill-database").await;
    servers.maria.restart().await.unwrap();
    is_well(&browser).await;
    browser.close().await;
}

#[tokio::test]
async fn redis_is_gone() {
    let mut servers = Servers::start().await;
    let daemon = servers.listen("").await;
    let browser = Browser::open(&daemon, "/").await;
    is_well(&browser).await;
    servers.redis.kill();
    named(&browser, HEADLINE, "No events arrive from Redis").await;
    named(&browser, ADVICE, "Check the Redis server").await;
    named(&browser, ".verdict", "Show the checks").await;
    browser.picture("drill-redis").await;
    servers.redis.start_again().await.unwrap();
    is_well(&browser).await;
    browser.close().await;
}

#[tokio::test]
async fn no_worker_asks() {
    let daemon = Daemon::start(SETTINGS);
    daemon.schedule(due("Push@notify", 30));
    until_red(&daemon, "Push@notify").await;
    let browser = Browser::open(&daemon, "/").await;
    named(&browser, HEADLINE, "Overdue tasks: 30").await;
    named(
        &browser,
        ADVICE,
        "No worker asks any daemon for the queue `push`",
    )
    .await;
    browser.picture("drill-worker").await;
    browser.click(".verdict a.primary", "Show queues").await;
    browser
        .shows("No worker asks any daemon for the queue `push`")
        .await;
    browser.go("/").await;
    let _worker = daemon.worker("push");
    is_well(&browser).await;
    browser.close().await;
}

#[tokio::test]
async fn no_daemon_has_a_route() {
    let daemon = Daemon::listen(SETTINGS).await;
    daemon.schedule(due("Legacy@import", 12));
    until_red(&daemon, "Legacy@import").await;
    let browser = Browser::open(&daemon, "/").await;
    named(&browser, HEADLINE, "Overdue tasks: 12").await;
    named(
        &browser,
        ADVICE,
        "No daemon has a matching handler or route",
    )
    .await;
    named(&browser, ADVICE, "Legacy@import").await;
    browser.picture("drill-route").await;
    browser.click(".verdict a", "Show these tasks").await;
    cancel_all(&browser, "12").await;
    browser.go("/").await;
    is_well(&browser).await;
    browser.close().await;
}

/// Cancels what a list shows.
async fn cancel_all(browser: &Browser, count: &str) {
    browser.click("button[data-bulk=cancel]", "").await;
    browser
        .click("dialog button.danger", &format!("Cancel {count} tasks"))
        .await;
    browser
        .shows_in("#notes", &format!("Cancelled: {count}."))
        .await;
}

#[tokio::test]
async fn a_pause_is_beside_an_outage() {
    let daemon = Daemon::start(SETTINGS);
    daemon.run(&["pause", "Shop", "--reason", "the stock is counted"]);
    // Every daemon has read of a pause after two seconds.
    let later = |mut task: Value| {
        task["in"] = json!("3s");
        task
    };
    daemon.schedule(
        due("Shop@close", 300)
            .map(later)
            .chain(due("Push@notify", 20)),
    );
    until_red(&daemon, "Shop@close").await;
    let browser = Browser::open(&daemon, "/").await;
    // The outage is smaller, and comes first: the pause is meant.
    named(&browser, HEADLINE, "Overdue tasks: 20").await;
    named(
        &browser,
        ADVICE,
        "No worker asks any daemon for the queue `push`",
    )
    .await;
    named(&browser, ".findings", "Overdue tasks: 300").await;
    named(&browser, ".findings", "Reason: the stock is counted.").await;
    browser.picture("drill-pause").await;
    browser.click(".findings button", "Resume").await;
    browser.click("dialog button", "Resume").await;
    daemon.until_listed("done", 300).await;
    let _worker = daemon.worker("push");
    is_well(&browser).await;
    browser.close().await;
}

#[tokio::test]
async fn tasks_crash_their_workers_until_they_are_dead() {
    let daemon = Daemon::start(SETTINGS);
    daemon.schedule(due("Mail@send", 40));
    // Workers that take tasks and die of them.
    until("all are dead", async || {
        let wanted = json!({"wait": "1s", "count": 50, "worker": "crashes"});
        daemon.call("/v1/queues/mail/take", wanted).await;
        let listed = daemon.run(&["--json", "list", "--state", "dead", "--limit", "1000"]);
        listed.lines().count() == 40
    })
    .await;
    let browser = Browser::open(&daemon, "/").await;
    named(&browser, HEADLINE, "Tasks died in the last 1 h: 40").await;
    browser.picture("drill-poison").await;
    browser.click(".verdict a.primary", "Show dead tasks").await;
    browser.shows_in("main", "poison").await;
    browser.picture("drill-poison-dead").await;
    let _worker = daemon.worker("mail");
    browser.click("[data-bulk=redrive]", "").await;
    browser.click("dialog button", "Redrive 40 tasks").await;
    browser.shows("No task is dead.").await;
    daemon.until_listed("done", 40).await;
    browser.close().await;
}

#[tokio::test]
async fn the_clock_jumps() {
    const HOUR_MS: i64 = 3_600_000;
    let place = tempfile::tempdir().unwrap();
    let mut clock = FakedClock::new(place.path());
    let environment = clock.environment();
    let daemon = Daemon::start_with(SETTINGS, |command| {
        command.envs(environment);
    });
    let body = json!({"key": "Shop@close@1", "in": "3h"});
    daemon.call("/v1/tasks", body).await;
    let browser = Browser::open(&daemon, "/").await;
    is_well(&browser).await;
    clock.set(HOUR_MS);
    named(
        &browser,
        HEADLINE,
        "The clock of the ledger jumped ahead by 1 h",
    )
    .await;
    named(
        &browser,
        ADVICE,
        "pause everything, set the clock of the database server right",
    )
    .await;
    browser.picture("drill-clock").await;
    // Nothing starts before its time while the clock is set right.
    browser.click(".verdict a", "Show pauses").await;
    browser.click("input[name=everything]", "").await;
    browser.click("form[data-call] button", "Pause").await;
    browser
        .click("dialog button.danger", "Pause everything")
        .await;
    browser.shows_in("#panel-pauses", "Everything").await;
    clock.set(0);
    browser.go("/").await;
    named(&browser, HEADLINE, "Everything is paused").await;
    browser.click(".verdict button", "Resume").await;
    browser.click("dialog button", "Resume").await;
    is_well(&browser).await;
    browser.close().await;
}

#[tokio::test]
async fn two_hundred_thousand_tasks_are_overdue() {
    let daemon = Daemon::start(SETTINGS);
    daemon.schedule(due("Slow@render", 200_000));
    until_red(&daemon, "Slow@render").await;
    let browser = Browser::open(&daemon, "/").await;
    named(&browser, HEADLINE, "Overdue tasks: 199,999").await;
    named(
        &browser,
        ADVICE,
        "The route runs as many tasks as it may at the same time: 1 on each daemon",
    )
    .await;
    named(&browser, ADVICE, "Slow@render").await;
    browser.picture("drill-backlog").await;
    // What runs is found among them.
    browser.go("/tasks?state=running").await;
    browser.shows_in("main table", "lease ends").await;
    browser.go("/").await;
    // They are of no use any more.
    browser.click(".verdict a", "Show these tasks").await;
    browser.click("button[data-bulk=cancel]", "").await;
    browser.click("dialog button.danger", "Cancel").await;
    browser.shows_in("#notes", "Cancelled: 199,999.").await;
    browser.go("/").await;
    is_well(&browser).await;
    browser.close().await;
}
