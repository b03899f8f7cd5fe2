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
async fn a_dead_task_is_redriven_when_its_cause_is_fixed() {
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
async fn a_pause_gets_an_end() {
    let daemon = started();
    daemon.schedule([json!({"key": "Shop@open@1", "in": "2h"})]);
    let browser = Browser::open(&daemon, "/pauses").await;
    browser.shows("Nothing is paused.").await;
    let ends =
        "Number(document.querySelector('#panel-pauses td[data-name=Until] time').dataset.at)";
    browser.type_in("#class", "Shop").await;
    browser.type_in("#for", "2h").await;
    browser.click("form[data-call] button", "Pause").await;
    browser.shows_in("#panel-pauses", "Shop").await;
    let in_hours = format!("return Math.round(({ends} - Date.now()) / 3600000)");
    assert_eq!(browser.get(&in_hours).await, json!(2));
    // Pausing again replaces the end.
    browser.type_in("#class", "Shop").await;
    let fill = "document.querySelector('#until').value = '2035-12-01T09:00:00'; return true";
    browser.get(fill).await;
    browser.click("form[data-call] button", "Pause").await;
    browser.shows_in("#panel-pauses", "2035-12-01").await;
    let is_then = format!("return {ends} === Date.parse('2035-12-01T09:00:00')");
    assert_eq!(browser.get(&is_then).await, json!(true));
    browser.close().await;
}

#[tokio::test]
async fn a_pause_and_its_end_are_taken_back() {
    let daemon = started();
    daemon.schedule([json!({"key": "Shop@open@1", "in": "2h"})]);
    let browser = Browser::open(&daemon, "/pauses").await;
    browser.shows("Nothing is paused.").await;
    let offered = "return [...document.querySelectorAll('#classes option')].map(it => it.value)";
    assert_eq!(browser.get(offered).await, json!(["Shop"]));
    browser.type_in("#class", "Shop").await;
    browser.type_in("#reason", "the stock is counted").await;
    browser.click("form[data-call] button", "Pause").await;
    browser
        .shows_in("#panel-pauses", "the stock is counted")
        .await;
    browser.click("#panel-pauses button", "Resume").await;
    browser.click("dialog button", "Resume").await;
    browser.shows("Nothing is paused.").await;
    // The latest note is of the end of the pause.
    browser
        .click("#notes > div:last-child button", "Undo")
        .await;
    browser
        .shows_in("#panel-pauses", "the stock is counted")
        .await;
    browser.go("/pauses").await;
    browser.click("#panel-pauses button", "Resume").await;
    browser.click("dialog button", "Resume").await;
    browser.shows("Nothing is paused.").await;
    browser.type_in("#class", "Shop").await;
    browser.click("form[data-call] button", "Pause").await;
    browser.shows_in("#panel-pauses", "Shop").await;
    browser
        .click("#notes > div:last-child button", "Undo")
        .await;
    browser.shows("Nothing is paused.").await;
    browser.close().await;
}

#[tokio::test]
async fn a_task_says_why_it_has_not_run() {
    let daemon = started();
    daemon.schedule([
        json!({"key": "Mail@send@1", "in": "0s"}),
        json!({"key": "Shop@open@1", "in": "2h"}),
    ]);
    let browser = Browser::open(&daemon, "/task?key=Mail%40send%401").await;
    browser
        .shows_in(".why", "No worker asks any daemon for the queue `mail`")
        .await;
    browser.picture("task-why").await;
    browser.click(".why a", "Show queues").await;
    browser.shows_in("h1", "Queues").await;
    daemon.run(&["pause", "Shop", "--reason", "the stock is counted"]);
    browser.go("/task?key=Shop%40open%401").await;
    browser.shows_in(".why", "`Shop` is paused since").await;
    browser
        .shows_in(".why", "Reason: the stock is counted.")
        .await;
    browser.close().await;
}

#[tokio::test]
async fn a_panel_that_fails_keeps_what_it_showed_and_is_not_live() {
    let daemon = started();
    daemon.schedule([json!({"key": "Shop@open@1", "in": "2h"})]);
    let browser = Browser::open(&daemon, "/tasks").await;
    browser.shows("Shop@open@1").await;
    browser.shows_in("#live", "Live").await;
    let is_live = "return !document.getElementById('live').classList.contains('offline')";
    assert_eq!(browser.get(is_live).await, true);
    // The answers of a daemon whose ledger does not answer.
    browser
        .get(
            "const fetched = window.fetch;
             window.fetch = (path, ...more) => String(path).includes('/panels/')
                ? Promise.resolve(new Response('<p class=\"failed\"><strong>It broke</strong></p>',
                    { status: 503, headers: { 'content-type': 'text/html' } }))
                : fetched(path, ...more);
             return null",
        )
        .await;
    daemon.schedule([json!({"key": "Shop@open@2", "in": "2h"})]);
    browser
        .shows_in("#panel-tasks.stale .since", "It broke")
        .await;
    browser.shows_in("#panel-tasks.stale", "Shop@open@1").await;
    assert_eq!(browser.get(is_live).await, false, "it is not up to date");
    browser.shows_in("#live", "Not up to date").await;
    browser.close().await;
}

#[tokio::test]
async fn the_chart_of_lateness_labels_each_mark_and_rounds_what_it_says() {
    let daemon = started();
    let browser = Browser::open(&daemon, "/").await;
    browser.shows("Tasks by state").await;
    // As the page has them after some minutes: tasks started 5.249916666666667 min late.
    browser
        .get(
            "window.drawn = [];
             const { fillText } = CanvasRenderingContext2D.prototype;
             CanvasRenderingContext2D.prototype.fillText = function (text, ...at) {
                drawn.push(String(text));
                return fillText.call(this, text, ...at);
             };
             const chart = document.createElement('div');
             chart.id = 'late';
             chart.style.width = '600px';
             chart.dataset.chart = 'lateness';
             chart.dataset.columns = JSON.stringify({ at: [60, 120, 180], p50: [4, 1250, null],
                p99: [250, 311291, null], max: [311, 314995, null] });
             chart.dataset.names = JSON.stringify(['p50', 'p99', 'max']);
             document.querySelector('main').append(chart);
             document.dispatchEvent(new Event('loaded'));
             return null",
        )
        .await;
    until("it is drawn", async || {
        browser.get("return drawn.length > 5").await == true
    })
    .await;
    let drawn = browser.get("return drawn").await.to_string();
    for label in ["1 ms", "100 ms", "1 s", "1 min", "10 min"] {
        assert!(drawn.contains(&format!("\"{label}\"")), "{label}: {drawn}");
    }
    assert!(!drawn.contains("null") && !drawn.contains("NaN"), "{drawn}");
    browser
        .get(
            "const over = document.querySelector('#late .u-over');
             const { left, top, width } = over.getBoundingClientRect();
             const at = { clientX: left + width / 2, clientY: top + 20, bubbles: true };
             over.dispatchEvent(new MouseEvent('mouseenter', at));
             over.dispatchEvent(new MouseEvent('mousemove', at));
             return null",
        )
        .await;
    browser.shows_in("#late .u-legend", "5 min 14 s").await;
    let legend = browser.text_of("#late .u-legend").await;
    assert!(
        legend.contains("5 min 11 s") && legend.contains("1.25 s"),
        "{legend}"
    );
    assert!(
        !legend.contains("314995") && !legend.contains("null"),
        "{legend}"
    );
    browser.close().await;
}

#[tokio::test]
async fn a_worker_comes_and_goes() {
    let daemon = started();
    let browser = Browser::open(&daemon, "/queues").await;
    browser
        .shows("No worker has asked this daemon since it started.")
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
    browser.shows_in("#live", "Live updates off").await;
    daemon.schedule([json!({"key": "Shop@open@1", "in": "2h"})]);
    browser.get("document.getElementById('live').focus()").await;
    assert!(!browser.text().await.contains("Shop@open@1"));
    browser.press(".").await;
    browser.shows("Shop@open@1").await;
    browser.close().await;
}

#[tokio::test]
async fn the_page_reports_a_stopped_daemon() {
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
