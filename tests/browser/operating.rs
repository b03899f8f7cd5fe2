//! What operators do to single tasks and to dead ones, with and without a mouse, and what they may not do.

use lapsed::config::hash_token;
use serde_json::json;

use crate::browser::Browser;
use crate::daemon::{Daemon, Servers};
use crate::support::wait::until;

/// Tasks of `Shop` are logged, those of `Bill` and `Card` fail for good.
const ROUTES: &str = r#"
[[routes]]
match = '^Shop@'
log = {}
[[routes]]
match = '^(Bill|Card)@'
exec = ["sh", "-c", "echo \"account $1 is closed\" >&2; exit 65", "sh", "{key}"]
"#;

/// The line of a task page that says its state.
const STATE: &str = "[data-panel] .state";

/// Buttons and forms that change something, besides those of the browser's own session.
const CHANGES: &str = "return document.querySelectorAll(
    '[data-act], [data-bulk], [data-call], main form:not(.filters)').length";

fn page_of(key: &str) -> String {
    format!("/task?key={}", key.replace('@', "%40"))
}

fn ttl_ms(daemon: &Daemon, key: &str) -> i64 {
    daemon.run(&["ttl", key]).trim().parse().unwrap()
}

const MINUTE_MS: i64 = 60_000;

#[tokio::test]
async fn a_task_is_moved_and_moved_back() {
    let daemon = Daemon::start(ROUTES);
    daemon.schedule([json!({"key": "Shop@open@1", "in": "2h"})]);
    let browser = Browser::open(&daemon, &page_of("Shop@open@1")).await;
    browser.click("button[data-act=move]", "").await;
    browser.click("dialog button", "+24 h").await;
    browser.picture("move-dialog").await;
    browser.click("dialog button.primary", "Move").await;
    browser.shows_in("#notes", "Moved to").await;
    assert!(ttl_ms(&daemon, "Shop@open@1") > 25 * 60 * MINUTE_MS);
    browser.click("#notes button", "Undo").await;
    browser.shows_in("#notes", "Undone.").await;
    let ttl = ttl_ms(&daemon, "Shop@open@1");
    assert!((110 * MINUTE_MS..=120 * MINUTE_MS).contains(&ttl), "{ttl}");
    browser.close().await;
}

#[tokio::test]
async fn a_cancelled_task_is_brought_back_whole() {
    let daemon = Daemon::start(ROUTES);
    let task = json!({"key": "Shop@open@1", "in": "2h", "tag": "shop-7", "payload": {"sku": 12345678901234567_u64},
        "max_attempts": 3});
    daemon.schedule([task]);
    let shown = || daemon.run(&["--json", "show", "Shop@open@1"]);
    let before: serde_json::Value = serde_json::from_str(&shown()).unwrap();
    let browser = Browser::open(&daemon, &page_of("Shop@open@1")).await;
    browser.click("button[data-act=cancel]", "").await;
    browser.click("dialog button.danger", "").await;
    browser.shows_in(STATE, "cancelled").await;
    browser.click("#notes button", "Undo").await;
    browser.shows_in("#notes", "Undone.").await;
    browser.shows_in(STATE, "pending").await;
    let after: serde_json::Value = serde_json::from_str(&shown()).unwrap();
    for member in ["key", "due", "payload", "tag", "max_attempts", "state"] {
        assert_eq!(after[member], before[member], "{member}");
    }
    browser.close().await;
}

#[tokio::test]
async fn a_task_is_run_now() {
    let daemon = Daemon::start(ROUTES);
    daemon.schedule([json!({"key": "Shop@open@1", "in": "2h"})]);
    let browser = Browser::open(&daemon, &page_of("Shop@open@1")).await;
    browser.click("button[data-act=run]", "Run now").await;
    browser.click("dialog button.primary", "Run now").await;
    browser.shows_in("#notes", "Due now.").await;
    browser.shows_in(STATE, "done").await;
    browser.close().await;
}

#[tokio::test]
async fn dead_tasks_are_discarded() {
    let daemon = Daemon::start(ROUTES);
    daemon.schedule((0..5).map(|n| json!({"key": format!("Bill@send@{n}"), "in": "0s"})));
    daemon.until_listed("dead", 5).await;
    let browser = Browser::open(&daemon, "/dead").await;
    browser.click("[data-bulk=discard]", "").await;
    browser.shows_in("dialog", "Tasks that match now: 5.").await;
    browser.shows_in("dialog", "class: Bill").await;
    browser.picture("discard-dialog").await;
    browser.click("dialog button", "Back").await;
    assert_eq!(
        daemon
            .run(&["--json", "list", "--state", "dead"])
            .lines()
            .count(),
        5
    );
    browser.click("[data-bulk=discard]", "").await;
    browser
        .click("dialog button.danger", "Discard 5 tasks")
        .await;
    browser.shows("No task is dead.").await;
    assert_eq!(daemon.run(&["--json", "list"]), "");
    browser.close().await;
}

#[tokio::test]
async fn everything_is_reached_with_the_keyboard() {
    const ENTER: &str = "\u{e007}";
    const ESCAPE: &str = "\u{e00c}";
    let daemon = Daemon::start(ROUTES);
    daemon
        .schedule((1..=3).map(|n| json!({"key": format!("Shop@open@{n}"), "in": format!("{n}h")})));
    let browser = Browser::open(&daemon, "/tasks").await;
    browser.shows("Shop@open@3").await;
    let focused = async || {
        let text = "const at = document.activeElement; return at.id || at.textContent.trim()";
        browser.get(text).await
    };
    browser.press("j").await;
    assert_eq!(focused().await, "Shop@open@1");
    browser.press("jj").await;
    browser.press("j").await;
    assert_eq!(focused().await, "Shop@open@3", "the last row stays");
    browser.press("k").await;
    assert_eq!(focused().await, "Shop@open@2");
    browser.press_focused(ENTER).await;
    browser.shows_in("h1", "Shop@open@2").await;
    browser.press("?").await;
    browser.shows_in("dialog", "Keyboard shortcuts").await;
    browser.picture("shortcuts").await;
    browser.press_focused("gt").await;
    browser.press_focused(ESCAPE).await;
    until("the dialog is closed", async || {
        browser.text_of("dialog").await.is_empty()
    })
    .await;
    browser.shows_in("h1", "Shop@open@2").await;
    browser.press("/").await;
    assert_eq!(focused().await, "find");
    browser.type_in("#find", "j?.").await;
    assert_eq!(browser.text_of("dialog").await, "", "it was typed");
    browser.press("gt").await;
    browser.shows_in("h1", "Tasks").await;
    browser.close().await;
}

#[tokio::test]
async fn no_page_shows_masked_arguments() {
    let daemon = Daemon::start(&format!(
        "http = {{ mask_payloads = ['Card'], mask_arguments = ['Card'] }}\n{ROUTES}"
    ));
    let payload = json!({"number": "s3cret-number"});
    daemon.schedule([
        json!({"key": "Card@charge@s3cret-dead", "in": "0s", "payload": payload}),
        json!({"key": "Card@charge@s3cret-later", "in": "2h", "payload": payload}),
    ]);
    daemon.until_listed("dead", 1).await;
    let browser = Browser::open(&daemon, "/tasks").await;
    for path in ["/tasks", "/dead", "/upcoming", "/", "/audit"] {
        browser.go(path).await;
        let page = browser
            .get("return document.documentElement.outerHTML")
            .await;
        assert!(!page.to_string().contains("s3cret"), "{path}: {page}");
    }
    browser.go("/tasks").await;
    browser.shows("Card@charge@hidden").await;
    browser.picture("tasks-masked").await;
    // The link has the id of the row. The page of a key that the caller knows shows it whole.
    browser.click("main tbody a", "Card@charge@hidden").await;
    browser.shows_in("h1", "Card@charge@hidden").await;
    assert!(browser.path().await.starts_with("/task?id="));
    browser.go(&page_of("Card@charge@s3cret-dead")).await;
    browser.shows_in(STATE, "dead").await;
    let text = browser.text().await;
    assert!(!text.contains("s3cret-number"), "{text}");
    assert!(!text.contains("is closed"), "{text}");
    assert!(text.contains("hidden"), "{text}");
    browser.picture("task-masked").await;
    browser.close().await;
}

/// Pages on which others have buttons.
const PAGES: [&str; 7] = [
    "/tasks?class=Shop",
    "/dead",
    "/pauses",
    "/schedule",
    "/recurring",
    "/queues",
    "/task?key=Shop%40open%401",
];

/// What is there to be changed: a pending task, a dead one, and a pause.
async fn changeable(daemon: &Daemon) {
    daemon.schedule([
        json!({"key": "Shop@open@1", "in": "2h"}),
        json!({"key": "Bill@send@1", "in": "0s"}),
    ]);
    daemon.until_listed("dead", 1).await;
    daemon.run(&["pause", "Stock", "--reason", "it is counted"]);
}

#[tokio::test]
async fn a_read_only_daemon_shows_no_buttons() {
    let daemon = Daemon::start(ROUTES);
    changeable(&daemon).await;
    let browser = Browser::open(&daemon, "/").await;
    for path in PAGES {
        browser.go(path).await;
        let has_changes = browser.get(CHANGES).await.as_u64().unwrap() > 0;
        assert_eq!(
            has_changes,
            !["/recurring", "/queues"].contains(&path),
            "{path}"
        );
    }
    browser.close().await;

    let daemon = Daemon::start(&format!("http.read_only = true\n{ROUTES}"));
    changeable(&daemon).await;
    let browser = Browser::open(&daemon, "/").await;
    for path in PAGES {
        browser.go(path).await;
        assert_eq!(browser.get(CHANGES).await, 0, "{path}");
    }
    browser.go("/pauses").await;
    browser.shows("http.read_only").await;
    browser.picture("pauses-read-only").await;
    browser.go("/schedule").await;
    browser.shows("http.read_only").await;
    browser.close().await;
}

#[tokio::test]
async fn a_reader_has_no_buttons_and_is_refused_with_a_reason() {
    const TOKEN: &str = "a-reader-of-the-dashboard-0123456789";
    let hash: String = hash_token(TOKEN)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let daemon = Daemon::start(&format!(
        "{ROUTES}[[http.clients]]\nname = 'reader'\ntoken_sha256 = '{hash}'\nscopes = 'read'\n"
    ));
    changeable(&daemon).await;
    let browser = Browser::open(&daemon, "/").await;
    browser.type_in("#token", &format!("{TOKEN}\n")).await;
    browser.shows("Tasks by state").await;
    for path in PAGES {
        browser.go(path).await;
        assert_eq!(browser.get(CHANGES).await, 0, "{path}");
    }
    browser.go("/schedule").await;
    browser.shows("your token lacks the scope `schedule`").await;
    browser.picture("schedule-reader").await;
    browser.expect_in_console("403 (Forbidden)");
    let refused = browser
        .get(
            "return fetch('v1/tasks/Shop%40open%401', {method: 'DELETE'})
                .then(answer => answer.json()).then(problem => [problem.status, problem.detail])",
        )
        .await;
    assert_eq!(refused[0], 403);
    assert!(
        refused[1].as_str().unwrap().contains("schedule"),
        "{refused}"
    );
    assert!(
        daemon
            .run(&["--json", "list", "--state", "pending"])
            .contains("Shop@open@1")
    );
    browser.close().await;
}

#[tokio::test]
async fn a_killed_daemon_leaves_the_page_of_another_daemon() {
    let servers = Servers::start().await;
    let first = servers.listen(ROUTES).await;
    let mut second = servers
        .listen("[[routes]]\nmatch = '^Mail@'\nlog = {}\n")
        .await;
    let browser = Browser::open(&first, "/daemons").await;
    let daemons = async || {
        let count = "return document.querySelectorAll('#panel-daemons section').length";
        browser.get(count).await
    };
    until("both are shown", async || daemons().await == 2).await;
    browser.shows("only here").await;
    for section in [1, 2] {
        let facts = format!("#panel-daemons section:nth-of-type({section}) .facts");
        browser.shows_in(&facts, "key_expiry").await;
    }
    browser.picture("daemons-two").await;
    second.kill();
    until("one is shown", async || daemons().await == 1).await;
    browser.shows("this one").await;
    browser.go("/").await;
    browser.shows("A daemon is lost").await;
    browser.picture("overview-gone").await;
    browser.close().await;
}
