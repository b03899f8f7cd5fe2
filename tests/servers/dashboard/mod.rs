//! The pages of the dashboard, read without JavaScript.

mod archive;
mod progress;
mod recurring;
mod rig;
mod steps;

use std::collections::HashSet;
use std::time::Duration;

use lapsed::{Task, TaskClient};

use self::rig::{Pages, attributes};
use crate::support::tasks::key;
use crate::support::wait::until;

/// Every page, and a text that only it has.
const PAGES: [(&str, &str); 5] = [
    ("/", "id=\"panel-verdict\""),
    ("/upcoming", "id=\"panel-upcoming\""),
    ("/tasks", "id=\"panel-tasks\""),
    ("/task?key=Order@close@1", "id=\"panel-task\""),
    ("/schedule", "id=\"schedule\""),
];

/// Most bytes of a page with everything that it loads.
const BYTES_MAX: usize = 150_000;

async fn create(tasks: &TaskClient, name: &str, delay: Duration) {
    tasks.create(key(name), delay).await.unwrap();
}

#[tokio::test]
async fn every_page_has_its_structure_and_is_small_with_all_that_it_loads() {
    let pages = Pages::start("").await;
    let tasks: TaskClient = pages.rig.client().await.into();
    create(&tasks, "Order@close@1", Duration::from_secs(600)).await;
    for (path, its_text) in PAGES {
        let body = pages.body(path).await;
        assert!(body.starts_with("<!doctype html>"), "{path}");
        assert!(body.contains(its_text), "{path}: {body}");
        assert!(!body.contains("class=\"failed\""), "{path}: {body}");
        for part in [
            "<html lang=\"en\"",
            "<main id=\"main\"",
            "<nav ",
            "· lapsed</title>",
            "role=\"search\"",
        ] {
            assert_eq!(body.matches(part).count(), 1, "{path}: {part}");
        }
        assert_eq!(body.matches("<h1").count(), 1, "{path}");
        // The content security policy allows none of these.
        for inline in [" style=", " onclick=", "<style", "<script>", "javascript:"] {
            assert!(!body.contains(inline), "{path}: {inline}");
        }
        let mut bytes = body.len();
        let mut loaded = attributes(&body, "src");
        let links = attributes(&body, "href").into_iter();
        loaded.extend(links.filter(|link| link.starts_with("/assets/")));
        assert!(loaded.len() >= 3, "{path}: {loaded:?}");
        for asset in loaded.into_iter().collect::<HashSet<_>>() {
            bytes += pages.body(&asset).await.len();
        }
        assert!(bytes <= BYTES_MAX, "{path} has {bytes} bytes");
    }
}

#[tokio::test]
async fn an_empty_installation_is_healthy_and_shows_that_it_is_empty() {
    let pages = Pages::start("").await;
    until("all is well", async || {
        pages.body("/").await.contains("<h1>All is well</h1>")
    })
    .await;
    assert!(
        pages
            .body("/tasks")
            .await
            .contains("There are no tasks yet.")
    );
    assert!(
        pages
            .body("/tasks?tag=a")
            .await
            .contains("No task matches.")
    );
    assert!(pages.body("/upcoming").await.contains("Nothing falls due"));
    let missing = pages.body("/task?key=Order@close@1").await;
    assert!(
        missing.contains("There is no task with this key"),
        "{missing}"
    );
    let bad = pages.body("/task?key=bad").await;
    assert!(bad.contains("This is not a task key"), "{bad}");
}

#[tokio::test]
async fn pages_are_in_the_language_that_the_browser_prefers() {
    let pages = Pages::start("").await;
    let in_chinese =
        |body: &str| body.contains("lang=\"zh-CN\" data-theme") && body.contains("总览");
    for (fields, expected) in [
        (&[][..], false),
        (&[("accept-language", "zh-CN,zh;q=0.9,en;q=0.8")], true),
        (
            &[("accept-language", "zh"), ("cookie", "lapsed_lang=en")],
            false,
        ),
        (
            &[
                ("accept-language", "en"),
                ("cookie", "a=b; lapsed_lang=zh-CN"),
            ],
            true,
        ),
    ] {
        let page = pages.get_with("/", fields).await;
        assert_eq!(in_chinese(&page.body), expected, "{fields:?}");
        let panel = pages.get_with("/panels/parts", fields).await;
        assert_eq!(panel.body.contains("账本"), expected, "{fields:?}");
    }
    let page = pages
        .get("/preferences?lang=zh-CN&theme=dark&back=%2Ftasks%3Fstate%3Ddead")
        .await;
    assert_eq!(
        (page.status, page.field("location")),
        (303, Some("/tasks?state=dead"))
    );
    assert!(
        page.head.contains("set-cookie: lapsed_lang=zh-cn; path=/;"),
        "{}",
        page.head
    );
    assert!(
        page.head.contains("set-cookie: lapsed_theme=dark; path=/;"),
        "{}",
        page.head
    );
    let away = pages
        .get("/preferences?theme=bad%0d%0a&back=%2F%2Fevil.example")
        .await;
    assert_eq!(
        (away.field("location"), away.field("set-cookie")),
        (Some("/"), None)
    );
}

#[tokio::test]
async fn hostile_keys_tags_payloads_and_errors_are_shown_as_text() {
    const HOSTILE: &str = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>";
    let settings = "[[routes]]\nmatch = '^Fails@'\nretry = { max_attempts = 1 }\n\
         exec = ['sh', '-c', 'echo \"<script>alert(2)</script>\" >&2; exit 65']";
    let pages = Pages::start(settings).await;
    let tasks: TaskClient = pages.rig.client().await.into();
    let hostile = Task::new("Order", "close", [HOSTILE]).unwrap();
    let name = hostile.key().to_string();
    let payload = serde_json::to_string(HOSTILE).unwrap();
    let hostile = hostile.tag(HOSTILE).payload(payload);
    tasks
        .create(hostile, Duration::from_secs(600))
        .await
        .unwrap();
    create(&tasks, "Fails@now", Duration::ZERO).await;
    pages
        .rig
        .until_state("Fails@now", lapsed::task::State::Dead)
        .await;

    let encode = |text: &str| -> String {
        let bytes = text.bytes();
        bytes.map(|byte| format!("%{byte:02x}")).collect()
    };
    let (name, text) = (encode(&name), encode(HOSTILE));
    for path in [
        "/".to_owned(),
        "/tasks".to_owned(),
        "/tasks?state=dead".to_owned(),
        "/upcoming".to_owned(),
        format!("/upcoming?class={text}"),
        format!("/task?key={name}"),
        format!("/task?key={text}"),
        "/task?key=Fails@now".to_owned(),
        format!("/tasks?prefix={text}&tag={text}&error={text}&due_after={text}"),
        format!("/tasks?state={text}&cursor={text}"),
        format!("/?span={text}"),
        format!("/panels/task?key={name}"),
        format!("/panels/tasks?state={text}"),
    ] {
        let page = pages.get(&path).await;
        let lower = page.body.to_lowercase();
        for raw in ["<script>", "<img", "\"'>"] {
            assert!(!lower.contains(raw), "{path}: {raw} in {}", page.body);
        }
    }
    let shown = pages.body("/task?key=Fails@now").await;
    assert!(shown.contains("alert(2)"), "{shown}");
}

#[tokio::test]
async fn a_large_table_is_read_page_by_page_and_counted_with_a_bound() {
    const TASKS: usize = 10_500;
    let pages = Pages::start("").await;
    let tasks: TaskClient = pages.rig.client().await.into();
    let new = |number: usize| {
        let due = Duration::from_secs(600 + number as u64 % 7);
        let due = lapsed::task::Due::after(due).unwrap();
        (Task::new("Order", "close", [number]).unwrap(), due)
    };
    tasks
        .create_many((0..TASKS).map(new).collect())
        .await
        .unwrap();

    let mut path = "/tasks?state=pending".to_owned();
    let mut seen = HashSet::new();
    for _ in 0..3 {
        let body = pages.body(&path).await;
        let links = attributes(&body, "href").into_iter();
        let rows: Vec<String> = links.filter(|link| link.starts_with("/task?")).collect();
        assert_eq!(rows.len(), 50);
        assert!(
            rows.into_iter().all(|row| seen.insert(row)),
            "a row comes twice"
        );
        let (_, next) = body
            .split_once("rel=\"next\" href=\"")
            .expect("a next page");
        path = next.split('"').next().unwrap().replace("&#38;", "&");
    }
    let overview = pages.panel("counts").await;
    assert!(overview.contains(">10,500</a>"), "{overview}");
    let methods = pages.panel("methods").await;
    assert!(
        methods.contains("Of the 10,000 unfinished tasks") && methods.contains(">≥ 10,000<"),
        "{methods}"
    );
    let upcoming = pages.body("/upcoming").await;
    assert!(
        upcoming.contains("The next 100 tasks. There are more."),
        "{upcoming}"
    );
    assert!(upcoming.len() < 100_000, "{}", upcoming.len());
}

#[tokio::test]
async fn each_panel_fails_by_itself_while_the_ledger_refuses() {
    let pages = Pages::start("").await;
    until("all is well", async || {
        pages.body("/").await.contains("<h1>All is well</h1>")
    })
    .await;
    pages
        .rig
        .run_sql("RENAME TABLE tb_time_limit_task TO away")
        .await;
    until("the overview says so", async || {
        let body = pages.body("/").await;
        body.contains("The ledger does not answer since ") && body.contains("class=\"failed\"")
    })
    .await;
    let body = pages.body("/").await;
    // What needs no ledger is there.
    assert!(body.contains("Parts of this daemon"), "{body}");
    let panel = pages.get("/panels/counts").await;
    assert!(panel.status >= 500, "{}", panel.status);
    assert!(
        panel.body.contains("This part could not be loaded"),
        "{}",
        panel.body
    );
    for path in ["/tasks", "/upcoming", "/task?key=Order@close@1"] {
        let body = pages.body(path).await;
        assert!(body.contains("This part could not be loaded"), "{path}");
        assert!(body.contains("<nav "), "{path}");
    }
    pages
        .rig
        .run_sql("RENAME TABLE away TO tb_time_limit_task")
        .await;
    until("all is well again", async || {
        pages.body("/").await.contains("<h1>All is well</h1>")
    })
    .await;
}

#[tokio::test]
async fn a_filter_that_does_not_fit_is_named_beside_the_form() {
    let pages = Pages::start("").await;
    let body = pages.body("/tasks?state=bad&due_after=noon").await;
    assert!(body.contains("due_after"), "{body}");
    assert!(body.contains("class=\"failed\""), "{body}");
    assert!(body.contains("value=\"noon\""), "{body}");
    assert_eq!(pages.get("/panels/tasks?state=bad").await.status, 400);
}

#[tokio::test]
async fn a_search_goes_to_the_task_or_to_those_that_begin_with_the_text() {
    let pages = Pages::start("").await;
    let tasks: TaskClient = pages.rig.client().await.into();
    create(&tasks, "Order@close@1", Duration::from_secs(600)).await;
    for (text, expected) in [
        ("Order@close@1", "/task?key=order%40close%401"),
        ("%20Order@close@1%20", "/task?key=order%40close%401"),
        ("Order@close", "/tasks?prefix=order%40close"),
        ("Order%26x", "/tasks?prefix=order%26x"),
    ] {
        let page = pages.get(&format!("/find?q={text}")).await;
        assert_eq!(
            (page.status, page.field("location")),
            (303, Some(expected)),
            "{text}"
        );
    }
}

#[tokio::test]
async fn files_of_the_dashboard_are_kept_by_browsers_until_they_change() {
    let pages = Pages::start("").await;
    let body = pages.body("/").await;
    let style = attributes(&body, "href")
        .into_iter()
        .find(|link| link.ends_with("app.css"));
    let style = style.unwrap();
    let page = pages.get(&style).await;
    assert_eq!(page.field("content-type"), Some("text/css; charset=utf-8"));
    assert!(page.field("cache-control").unwrap().contains("immutable"));
    let tag = page.field("etag").unwrap();
    let again = pages.get_with(&style, &[("if-none-match", tag)]).await;
    assert_eq!((again.status, again.body.len()), (304, 0));
    let older = pages.get("/assets/0000000000000000/app.css").await;
    assert_eq!(
        (older.status, older.field("cache-control")),
        (200, Some("no-cache"))
    );
    assert_eq!(
        pages
            .get("/assets/0000000000000000/..%2fmod.rs")
            .await
            .status,
        404
    );
}
