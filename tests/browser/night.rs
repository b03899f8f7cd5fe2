//! What an operator relies on at night: rows that stay, times of one zone, dialogs that say what will be, and searches.

use serde_json::json;

use crate::browser::{Browser, VIEWS};
use crate::daemon::Daemon;
use crate::support::wait::until;

/// Tasks of `Shop` are logged, those of `Bill` fail for good, those of `Retry` for an hour, those of `Mail` are pulled.
const SETTINGS: &str = r#"
retry = { ladder = ["1h"] }
[[routes]]
match = '^Shop@'
log = {}
[[routes]]
match = '^Bill@'
exec = ["sh", "-c", "echo \"account $1 is closed\" >&2; exit 65", "sh", "{key}"]
[[routes]]
match = '^Retry@'
exec = ["sh", "-c", "echo 'it is busy' >&2; exit 1"]
[[routes]]
match = '^Mail@'
pull = { queue = "mail", visibility = "10m" }
"#;

fn started() -> Daemon {
    Daemon::start(SETTINGS)
}

/// The key of the row that has the focus.
const FOCUSED: &str = "return document.activeElement.closest('tr')?.querySelector('a').innerText";

#[tokio::test]
async fn the_focus_stays_on_its_task_while_the_list_changes() {
    let daemon = started();
    daemon.schedule((1..=5).map(|n| json!({"key": format!("Shop@open@{n}"), "in": "2h"})));
    let browser = Browser::open(&daemon, "/tasks?state=pending").await;
    browser.shows("Shop@open@5").await;
    for _ in 0..3 {
        browser.press_focused("j").await;
    }
    assert_eq!(browser.get(FOCUSED).await, "Shop@open@3");
    daemon.run(&["cancel", "Shop@open@1"]);
    until("the row has gone", async || {
        !browser
            .text_of("#panel-tasks")
            .await
            .contains("Shop@open@1")
    })
    .await;
    assert_eq!(browser.get(FOCUSED).await, "Shop@open@3");
    let here = "return document.querySelector('tr.here a')?.innerText";
    assert_eq!(browser.get(here).await, "Shop@open@3");
    browser.press_focused("j").await;
    assert_eq!(browser.get(FOCUSED).await, "Shop@open@4");
    browser.close().await;
}

#[tokio::test]
async fn a_row_that_moves_under_the_pointer_takes_no_click() {
    let daemon = started();
    daemon.schedule((1..=5).map(|n| json!({"key": format!("Shop@open@{n}"), "in": "2h"})));
    let browser = Browser::open(&daemon, "/tasks?state=pending").await;
    browser.shows("Shop@open@5").await;
    // The pointer rests on a row, and is pressed in the moment in which another comes there.
    browser
        .get(
            "window.pressed = null;
             const at = () => {
                const { left, top } = document.querySelectorAll('#panel-tasks tbody tr')[1].getBoundingClientRect();
                return { clientX: left + 5, clientY: top + 5, bubbles: true, cancelable: true, detail: 1 };
             };
             const place = at();
             dispatchEvent(new PointerEvent('pointermove', place));
             document.addEventListener('loaded', () => {
                const found = document.elementFromPoint(place.clientX, place.clientY);
                if (found.closest('tr').innerText.includes('Shop@open@2')) return;
                pressed ??= found.dispatchEvent(new MouseEvent('click', place));
             });
             return null",
        )
        .await;
    daemon.run(&["cancel", "Shop@open@1"]);
    until("it was pressed", async || {
        browser.get("return pressed !== null").await == true
    })
    .await;
    assert_eq!(
        browser.get("return pressed").await,
        false,
        "it takes no click"
    );
    browser.close().await;
}

#[tokio::test]
async fn the_title_and_the_icon_have_the_state_of_the_installation() {
    let daemon = started();
    let browser = Browser::open(&daemon, "/tasks").await;
    let title = "return document.title";
    browser.shows("There are no tasks yet.").await;
    assert_eq!(browser.get(title).await, "Tasks · lapsed");
    daemon.schedule([json!({"key": "Mail@send@1", "in": "0s"})]);
    until("the title tells of it", async || {
        let title = browser.get(title).await;
        let title = title.as_str().unwrap_or_default();
        title.starts_with("(!) Overdue tasks: 1, the oldest by")
            && title.ends_with(" · Tasks · lapsed")
    })
    .await;
    let icon = "return document.querySelector('link[rel=icon]').href";
    let icon = browser.get(icon).await;
    assert!(
        icon.as_str().unwrap().ends_with("icon-warning.svg"),
        "{icon}"
    );
    browser.close().await;
}

#[tokio::test]
async fn every_time_of_a_page_is_in_the_zone_that_it_names() {
    let daemon = started();
    daemon.run(&["schedule", "Shop@open@1", "--at", "2030-06-01T08:00:00Z"]);
    let browser = Browser::open(&daemon, "/task?key=Shop%40open%401").await;
    // The browser has gone to another zone since it told its own.
    browser
        .get("document.cookie = 'lapsed_zone=Europe/Berlin; Path=/'")
        .await;
    browser.move_to_zone("Asia/Shanghai").await;
    browser.go("/task?key=Shop%40open%401").await;
    browser.shows("2030-06-01 10:00:00").await;
    browser.shows_in("footer", "Times in Europe/Berlin").await;
    browser.click("button[data-act=move]", "").await;
    browser.shows_in("dialog", "Times in Europe/Berlin").await;
    let field = "return document.querySelector('dialog input').value";
    assert_eq!(browser.get(field).await, "2030-06-01T10:00");
    browser.click("dialog button", "+1 h").await;
    browser.click("dialog button.primary", "Move").await;
    browser
        .shows_in("#notes", "Moved to 2030-06-01 11:00:00.")
        .await;
    browser
        .shows_in("[data-panel] .steps", "2030-06-01 11:00:00")
        .await;
    // The zone is changed with a press, to that of the browser and to UTC.
    browser.click("footer a", "Asia/Shanghai").await;
    browser.shows("2030-06-01 17:00:00").await;
    browser.click("footer a", "UTC").await;
    browser.shows("2030-06-01 09:00:00").await;
    browser.close().await;
}

#[tokio::test]
async fn dialogs_say_what_cannot_be_taken_back() {
    let daemon = started();
    daemon.schedule([
        json!({"key": "Retry@later@1", "in": "0s"}),
        json!({"key": "Shop@daily@1", "cron": "0 3 * * *", "tz": "UTC"}),
    ]);
    daemon.until_listed("waiting", 1).await;
    let browser = Browser::open(&daemon, "/task?key=Retry%40later%401").await;
    browser.click("button[data-act=move]", "").await;
    browser
        .shows_in("dialog", "Its attempts count from zero then")
        .await;
    browser.click("dialog button", "+10 min").await;
    browser.click("dialog button.primary", "Move").await;
    browser.shows_in("#notes", "Moved to").await;
    assert!(!browser.text_of("#notes").await.contains("Undo"));
    browser.go("/task?key=Shop%40daily%401").await;
    browser.click("button[data-act=cancel]", "").await;
    browser.shows_in("dialog h2", "End this series?").await;
    browser
        .shows_in("dialog", "No occurrence runs any more.")
        .await;
    browser.picture("end-series-dialog").await;
    browser
        .click("dialog button.danger", "End the series")
        .await;
    browser.shows_in("[data-panel] .state", "cancelled").await;
    browser.close().await;
}

#[tokio::test]
async fn no_value_of_a_task_runs_into_its_neighbour() {
    let daemon = started();
    let long = "a".repeat(200);
    daemon.schedule([
        json!({"key": format!("Shop@open@{long}"), "in": "90d", "tag": "shop-7", "payload": {"sku": [1, 2]}}),
    ]);
    let browser = Browser::open(&daemon, &format!("/task?key=Shop%40open%40{long}")).await;
    let outside = "return [...document.querySelectorAll('.facts dd')].filter(value => {
            const inside = document.createRange();
            inside.selectNodeContents(value);
            return inside.getBoundingClientRect().right > value.getBoundingClientRect().right + 1;
        }).map(value => value.innerText)";
    for view in [VIEWS[0], VIEWS[2]] {
        browser.view(view).await;
        assert_eq!(browser.get(outside).await, json!([]), "{}", view.device);
    }
    browser.shows("\"sku\": [\n").await;
    browser.picture("task-long").await;
    browser.close().await;
}

#[tokio::test]
async fn a_dead_task_is_discarded_on_its_page() {
    let daemon = started();
    daemon.schedule([json!({"key": "Bill@send@1", "in": "0s"})]);
    daemon.until_listed("dead", 1).await;
    let browser = Browser::open(&daemon, "/task?key=Bill%40send%401").await;
    browser.click("button[data-act=discard]", "").await;
    browser
        .click("dialog button.danger", "Discard the task")
        .await;
    browser.shows("There is no task with this key").await;
    browser.close().await;
}

#[tokio::test]
async fn a_search_finds_tasks_by_what_is_seen_of_them() {
    let daemon = started();
    daemon.schedule([
        json!({"key": "Bill@send@1", "in": "0s"}),
        json!({"key": "Shop@open@1", "in": "2h", "tag": "shop-7"}),
    ]);
    daemon.until_listed("dead", 1).await;
    let browser = Browser::open(&daemon, "/task?key=Shop%40open%401").await;
    let id = "return document.querySelector('[data-task]').dataset.id";
    let id = browser.get(id).await.as_str().unwrap().to_owned();
    for (text, path, seen) in [
        (id.as_str(), "/task?id=", "Shop@open@1"),
        ("shop-7", "/tasks?tag=", "Shop@open@1"),
        ("Shop@op", "/tasks?prefix=", "Shop@open@1"),
        ("is closed", "/tasks?error=", "Bill@send@1"),
        ("nowhere", "/tasks?prefix=", "No task matches."),
    ] {
        browser.go("/").await;
        browser.type_in("#find", &format!("{text}\n")).await;
        browser.shows_in("main", seen).await;
        let at = browser.path().await;
        assert!(at.starts_with(path), "{text}: {at}");
    }
    browser.close().await;
}

#[tokio::test]
async fn a_bar_of_the_forecast_leads_to_its_tasks() {
    let daemon = started();
    let at = |n: usize, delay: &str| json!({"key": format!("Shop@open@{n}"), "in": delay});
    daemon.schedule((0..3).map(|n| at(n, "20m")).chain([at(9, "50m")]));
    let browser = Browser::open(&daemon, "/upcoming").await;
    let first = "return document.querySelector('.timeline a').getAttribute('href')";
    let first = browser.get(first).await.as_str().unwrap().to_owned();
    browser.go(&first).await;
    browser.shows("Shop@open@0").await;
    browser.shows("3 on this page").await;
    browser.close().await;
}

#[tokio::test]
async fn the_audit_log_is_filtered_and_begins_with_what_people_did() {
    let daemon = started();
    for n in 0..60 {
        let body = json!({"key": format!("Shop@open@{n}"), "in": "2h"});
        daemon.call("/v1/tasks", body).await;
    }
    let body = json!({"class": "Shop", "reason": "the stock is counted"});
    daemon.call("/v1/pauses", body).await;
    let browser = Browser::open(&daemon, "/audit").await;
    browser.shows_in("main", "the stock is counted").await;
    let rows = "return document.querySelectorAll('#panel-audit tbody tr').length";
    assert_eq!(
        browser.get(rows).await,
        1,
        "what programs create is left out"
    );
    browser.picture("audit-filters").await;
    browser.go("/audit?verb=create&of=Shop%40open").await;
    browser.shows_in("#panel-audit table", "create").await;
    browser.go("/audit?who=nobody&verb=all").await;
    browser.shows("No entry matches.").await;
    browser.close().await;
}

#[tokio::test]
async fn a_filter_that_does_not_fit_offers_no_change() {
    let daemon = started();
    let browser = Browser::open(&daemon, "/tasks?tag=a").await;
    browser.shows("Cancel all that match").await;
    browser.expect_in_console("Failed to load resource");
    browser.go("/tasks?tag=a&due_after=noon").await;
    browser.shows("`due_after` is `noon`").await;
    let text = browser.text().await;
    assert!(!text.contains("Cancel all that match"), "{text}");
    assert!(!text.contains("loads again by itself"), "{text}");
    browser.close().await;
}

#[tokio::test]
async fn a_key_shows_what_would_turn_it_around() {
    let daemon = started();
    daemon.schedule([json!({"key": "Shop@open@\u{202e}gnp.exe", "in": "2h"})]);
    let browser = Browser::open(&daemon, "/tasks").await;
    browser.shows("Shop@open@\\u{202e}gnp.exe").await;
    browser.click("main table a", "Shop@open").await;
    browser.shows_in("h1", "Shop@open@\\u{202e}gnp.exe").await;
    browser.close().await;
}

#[tokio::test]
async fn the_state_of_a_list_is_a_press_away_and_what_has_ended_last_is_first() {
    let daemon = started();
    daemon
        .schedule((1..=3).map(|n| json!({"key": format!("Bill@send@{n}"), "in": format!("{n}s")})));
    daemon.schedule([json!({"key": "Shop@open@1", "in": "2h"})]);
    daemon.until_listed("dead", 3).await;
    let browser = Browser::open(&daemon, "/").await;
    browser.click(".places a", "Tasks").await;
    browser.shows_in(".tabs [aria-current]", "Unfinished").await;
    browser.shows_in("#panel-tasks table", "Shop@open@1").await;
    assert!(!browser.text_of("#panel-tasks table").await.contains("Bill"));
    browser.shows_in(".tabs", "Dead 3").await;
    browser.click(".tabs a", "Dead").await;
    browser.shows("Newest first.").await;
    let keys =
        "return [...document.querySelectorAll('#panel-tasks tbody a')].map(it => it.innerText)";
    let newest = ["Bill@send@3", "Bill@send@2", "Bill@send@1"];
    assert_eq!(browser.get(keys).await, json!(newest));
    browser.picture("tasks-dead").await;
    browser.close().await;
}

#[tokio::test]
async fn many_windows_are_live_at_once() {
    let daemon = started();
    daemon.schedule([json!({"key": "Shop@open@1", "in": "2h"})]);
    let browser = Browser::open(&daemon, "/tasks").await;
    // More than a browser has connections to a site.
    for _ in 0..8 {
        browser.open_another("/tasks").await;
        browser.shows("Shop@open@1").await;
        browser.shows_in("#live", "Live").await;
    }
    daemon.schedule([json!({"key": "Shop@open@2", "in": "2h"})]);
    browser.shows("Shop@open@2").await;
    browser.close().await;
}

#[tokio::test]
async fn a_series_says_in_words_when_it_occurs() {
    let daemon = started();
    daemon.schedule([
        json!({"key": "Shop@daily@1", "cron": "30 3 * * Mon-Fri", "tz": "Asia/Shanghai"}),
    ]);
    let browser = Browser::open(&daemon, "/recurring").await;
    browser.shows("on weekdays at 03:30 (Asia/Shanghai)").await;
    browser.close().await;
    let chinese = Browser::open_in("zh-CN", &daemon, "/task?key=Shop%40daily%401").await;
    chinese.shows("每周一至周五 03:30（Asia/Shanghai）").await;
    chinese.close().await;
}

#[tokio::test]
async fn a_series_says_what_became_of_its_latest_occurrence() {
    let daemon = started();
    let browser = Browser::open(&daemon, "/recurring").await;
    let daily = |key| json!({"key": key, "every": "24h", "in": "0s"});
    daemon.schedule([daily("Shop@report@1"), daily("Bill@report@1")]);
    browser.shows_in("main table", "succeeded").await;
    browser.shows_in("main table", "failed: permanent").await;
    browser.picture("recurring-latest").await;
    browser.go("/task?key=Bill%40report%401").await;
    browser.shows("Latest occurrence: failed: permanent").await;
    browser.close().await;
    let chinese = Browser::open_in("zh-CN", &daemon, "/task?key=Shop%40report%401").await;
    chinese.shows("上一次执行：成功").await;
    chinese.close().await;
}

#[tokio::test]
async fn an_address_without_a_page_says_so_and_leads_back() {
    let daemon = started();
    let browser = Browser::open(&daemon, "/").await;
    browser.expect_in_console("Failed to load resource");
    browser.go("/nowhere").await;
    browser.shows_in("h1", "There is no such page").await;
    browser.check("no page").await;
    browser.click("main a", "Overview").await;
    browser.shows("Tasks by state").await;
    browser.close().await;
}

#[tokio::test]
async fn the_reason_of_a_bulk_change_is_in_the_audit_log() {
    let daemon = started();
    daemon.schedule((0..3).map(|n| json!({"key": format!("Bill@send@{n}"), "in": "0s"})));
    daemon.until_listed("dead", 3).await;
    let browser = Browser::open(&daemon, "/dead").await;
    browser.click("[data-bulk=discard]", "").await;
    browser
        .type_in("#bulk-reason", "the customer has left")
        .await;
    browser
        .click("dialog button.danger", "Discard 3 tasks")
        .await;
    browser.shows("No task is dead.").await;
    browser.go("/audit").await;
    browser
        .shows_in("#panel-audit", "the customer has left")
        .await;
    browser.close().await;
}

#[tokio::test]
async fn a_series_says_that_nothing_runs_it_before_it_is_due() {
    let daemon = Daemon::listen(SETTINGS).await;
    daemon.schedule([json!({"key": "Report@daily@1", "cron": "30 3 * * *", "tz": "UTC"})]);
    let browser = Browser::open(&daemon, "/recurring").await;
    browser
        .shows_in("main table", "No daemon has a matching handler or route.")
        .await;
    browser.picture("recurring-no-route").await;
    browser.close().await;
}

#[tokio::test]
async fn a_running_task_names_its_daemon_and_its_lease() {
    let daemon = started();
    daemon.schedule([json!({"key": "Mail@send@1", "in": "0s"})]);
    let wanted = json!({"wait": "20s", "worker": "postman-1"});
    let taken = daemon.call("/v1/queues/mail/take", wanted).await;
    assert_eq!(taken["tasks"][0]["key"], "Mail@send@1");
    let browser = Browser::open(&daemon, "/tasks?state=running").await;
    browser.shows_in("main tbody", "pull:mail").await;
    browser.shows_in("main tbody", "lease ends in").await;
    browser.picture("tasks-running").await;
    browser.click("main tbody a", "Mail@send@1").await;
    browser.shows_in(".steps", "Attempt 1 started").await;
    browser.shows_in(".steps", "Lease ends").await;
    browser.close().await;
}
