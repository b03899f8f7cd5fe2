//! What operators do, from the first click to what they see then.

use serde_json::json;

use crate::browser::Browser;
use crate::daemon::Daemon;
use crate::support::wait::until;

/// Tasks of `Shop` are logged, those of `Bill` fail for good until the file `mended` is there, those of `Mail` are pulled.
const SETTINGS: &str = r#"
[[routes]]
match = '^Shop@'
log = {}
[[routes]]
match = '^Bill@'
exec = ["sh", "-c", "test -e {dir}/mended || { echo \"<script>hacked=1</script> bill $1\" >&2; exit 65; }", "sh", "{id}"]
[[routes]]
match = '^Mail@'
pull = { queue = "mail", visibility = "30s" }
"#;

fn started() -> Daemon {
    Daemon::start(SETTINGS)
}

/// The line of a task page that says its state.
const STATE: &str = "[data-panel] .state";

#[tokio::test]
async fn a_task_is_scheduled_and_seen_to_start() {
    let daemon = started();
    let browser = Browser::open(&daemon, "/schedule").await;
    browser.type_in("#key", "Shop@close@42").await;
    browser.type_in("#in", "5s").await;
    browser.click("form#schedule button", "Schedule").await;
    browser.shows_in("h1", "Shop@close@42").await;
    browser.shows_in(STATE, "pending").await;
    // Nothing is pressed and nothing is loaded again.
    browser.get("window.isSame = true").await;
    browser.shows_in(STATE, "done").await;
    assert_eq!(browser.get("return window.isSame").await, true);
    browser.close().await;
}

#[tokio::test]
async fn a_task_is_cancelled_on_its_page() {
    let daemon = started();
    daemon.schedule([json!({"key": "Shop@open@1", "in": "2h"})]);
    let browser = Browser::open(&daemon, "/").await;
    browser.press("/").await;
    browser.type_in("#find", "Shop@open@1\n").await;
    browser.shows_in("h1", "Shop@open@1").await;
    browser.click("button[data-act=cancel]", "").await;
    browser.click("dialog button.danger", "").await;
    browser.shows_in(STATE, "cancelled").await;
    browser.go("/audit").await;
    browser.shows_in("main", "Shop@open@1").await;
    browser.shows_in("main", "cancel").await;
    browser.picture("audit-entries").await;
    browser.close().await;
}

#[tokio::test]
async fn what_has_failed_is_redriven_when_the_cause_is_mended() {
    let daemon = started();
    daemon.schedule((0..30).map(|n| json!({"key": format!("Bill@send@{n}"), "in": "0s"})));
    daemon.until_listed("dead", 30).await;
    let browser = Browser::open(&daemon, "/dead").await;
    browser.shows("Dead tasks: 30. Kinds of error: 1.").await;
    browser.go("/task?key=Bill%40send%407").await;
    browser.shows("<script>hacked=1</script>").await;
    std::fs::write(daemon.path("mended"), "").unwrap();
    browser.click("button[data-act=redrive]", "").await;
    browser.click("dialog button.primary", "").await;
    browser.shows_in(STATE, "done").await;
    browser.go("/dead").await;
    browser.click("[data-bulk=redrive]", "").await;
    browser.shows_in("dialog", "29").await;
    browser.picture("redrive-dialog").await;
    browser
        .click("dialog button.primary, dialog button.danger", "Redrive")
        .await;
    browser.shows("No task is dead.").await;
    daemon.until_listed("done", 30).await;
    assert_eq!(browser.get("return typeof hacked").await, "undefined");
    browser.close().await;
}

#[tokio::test]
async fn a_class_is_paused_and_resumed() {
    let daemon = started();
    let browser = Browser::open(&daemon, "/pauses").await;
    browser.shows("Nothing is paused.").await;
    browser.type_in("#class", "Shop").await;
    browser.type_in("#reason", "the stock is counted").await;
    browser.click("form[data-call] button", "Pause").await;
    // No task has this class: it may be mistyped.
    browser
        .shows_in("dialog", "Pause Shop though no task has it?")
        .await;
    browser.click("dialog button.primary", "Pause it").await;
    browser
        .shows_in("#panel-pauses", "the stock is counted")
        .await;
    // Every daemon has read of a pause after two seconds; this one says when.
    daemon.schedule([json!({"key": "Shop@close@1", "in": "3s"})]);
    browser.go("/tasks?prefix=Shop").await;
    browser.shows_in("main", "paused").await;
    browser.go("/pauses").await;
    browser.click("#panel-pauses button", "Resume").await;
    browser.click("dialog button", "Resume").await;
    browser.shows("Nothing is paused.").await;
    daemon.until_listed("done", 1).await;
    browser.close().await;
}

#[tokio::test]
async fn a_worker_comes_and_goes() {
    let daemon = started();
    let browser = Browser::open(&daemon, "/queues").await;
    browser
        .shows("No worker has asked since this daemon started.")
        .await;
    let call = daemon.call(
        "/v1/queues/mail/take",
        json!({"wait": "50s", "worker": "postman-1"}),
    );
    let call = tokio::spawn(call);
    browser.shows_in("#panel-queues", "postman-1").await;
    browser.shows_in("#panel-queues", "waits for tasks").await;
    daemon.schedule([json!({"key": "Mail@send@1", "in": "0s"})]);
    let taken = call.await.unwrap();
    assert_eq!(taken["tasks"][0]["key"], "Mail@send@1");
    browser.shows_in("#panel-queues", "works, or is gone").await;
    browser.picture("queues-worker").await;
    let claim = taken["tasks"][0]["claim"].as_str().unwrap();
    daemon
        .call(&format!("/v1/claims/{claim}/done"), json!({}))
        .await;
    daemon.until_listed("done", 1).await;
    browser.close().await;
}

#[tokio::test]
async fn hostile_texts_are_shown_as_texts() {
    const HOSTILE: &str = "<img/src=x/onerror=hacked=1>\"'&{{7*7}}";
    let daemon = started();
    let key = format!("Shop@open@{HOSTILE}");
    let payload = json!({"<b>": "</script><script>hacked=1</script>"});
    daemon.schedule([json!({"key": key, "in": "2h", "tag": HOSTILE, "payload": payload})]);
    daemon.run(&["pause", "Shop", "--reason", HOSTILE]);
    let browser = Browser::open(&daemon, "/tasks").await;
    for path in ["/tasks", "/upcoming"] {
        browser.go(path).await;
        browser.shows(&key).await;
    }
    browser.click("main a", &key).await;
    browser.shows_in("h1", &key).await;
    browser.shows("</script><script>hacked=1</script>").await;
    browser.go("/pauses").await;
    browser.shows(HOSTILE).await;
    // The panel is refused with a text.
    browser.expect_in_console("Failed to load resource");
    browser
        .go("/tasks?state=%3Cscript%3Ehacked=1%3C/script%3E")
        .await;
    browser.shows("is not a state").await;
    let injected =
        "return [typeof hacked, document.querySelectorAll('main img, main script').length]";
    assert_eq!(browser.get(injected).await, json!(["undefined", 0]));
    browser.close().await;
}

#[tokio::test]
async fn live_updates_can_be_paused() {
    let daemon = started();
    let browser = Browser::open(&daemon, "/tasks").await;
    browser.shows("There are no tasks yet.").await;
    browser.shows_in("#live", "Live").await;
    browser.press(".").await;
    browser.shows_in("#live", "Paused").await;
    daemon.schedule([json!({"key": "Shop@open@1", "in": "2h"})]);
    browser.get("document.getElementById('live').focus()").await;
    assert!(!browser.text().await.contains("Shop@open@1"));
    browser.press(".").await;
    browser.shows("Shop@open@1").await;
    browser.close().await;
}

#[tokio::test]
async fn a_daemon_that_is_gone_is_noticed() {
    let mut daemon = started();
    let browser = Browser::open(&daemon, "/tasks").await;
    browser.shows_in("#live", "Live").await;
    browser.expect_in_console("Failed to load resource");
    daemon.kill();
    browser.shows_in("#live", "Not connected").await;
    until("the panel says how old it is", async || {
        browser
            .get("return document.querySelector('.panel.stale .since') !== null")
            .await
            == true
    })
    .await;
    browser.close().await;
}

#[tokio::test]
async fn pausing_everything_is_confirmed_with_numbers() {
    let daemon = started();
    daemon.schedule((0..3).map(|n| json!({"key": format!("Shop@open@{n}"), "in": "2h"})));
    let browser = Browser::open(&daemon, "/pauses").await;
    browser.shows("Nothing is paused.").await;
    browser.click("input[name=everything]", "").await;
    browser.click("form[data-call] button", "Pause").await;
    browser.shows_in("dialog", "Pending: 3, overdue: 0").await;
    browser.click("dialog button", "Back").await;
    browser.go("/pauses").await;
    browser.shows("Nothing is paused.").await;
    browser.click("input[name=everything]", "").await;
    browser.click("form[data-call] button", "Pause").await;
    browser
        .click("dialog button.danger", "Pause everything")
        .await;
    browser.shows_in("#panel-pauses", "Everything").await;
    browser.close().await;
}

#[tokio::test]
async fn a_person_logs_in_and_out() {
    const TOKEN: &str = "correct-horse-battery-staple-0123456789";
    let daemon = Daemon::start(&format!("http.tokens = ['{TOKEN}']"));
    let browser = Browser::open(&daemon, "/pauses").await;
    browser.shows("Log in").await;
    browser.picture("login").await;
    browser.type_in("#token", "wrong\n").await;
    until("a wrong token is refused", async || {
        !browser.text_of("#failed").await.is_empty()
    })
    .await;
    browser.type_in("#token", &format!("{TOKEN}\n")).await;
    // Back to the page that was asked for.
    browser.shows("Nothing is paused.").await;
    let kept = browser.get("return document.cookie").await;
    assert!(
        !kept.as_str().unwrap().contains(TOKEN),
        "no script reads the token"
    );
    browser.click("footer button", "Log out").await;
    browser.shows_in("button", "Log in").await;
    browser.go("/pauses").await;
    browser.shows_in("button", "Log in").await;
    browser.close().await;
}
