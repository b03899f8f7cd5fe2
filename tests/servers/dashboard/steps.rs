//! What has happened to a task: its page, JSON, and `lapsed --local show`.

use serde_json::Value;

use crate::dashboard::rig::Pages;
use crate::support::program::said;
use crate::support::shell::Shell;

/// The texts of the steps of a page, without tags.
fn steps(page: &str) -> Vec<String> {
    let (_, rest) = page.split_once("<ol class=\"steps\">").expect(page);
    let (list, _) = rest.split_once("</ol>").unwrap();
    let items = list.split("</li>").map(|item| {
        let texts = item.split('<').filter_map(|part| part.split_once('>'));
        let texts: Vec<&str> = texts.map(|(_, text)| text.trim()).collect();
        texts.concat()
    });
    items.filter(|item| !item.is_empty()).collect()
}

#[tokio::test]
async fn a_page_says_how_late_each_run_started_and_how_long_it_took() {
    let pages = Pages::start("").await;
    let history = r#"{"how":"failed","attempt":1,"started":"2026-11-21T10:00:00.003Z","at":"2026-11-21T10:00:00.703Z","error":"no","daemon":"d-1"}"#;
    // Created at 09:00, due at 10:00, tried again at 10:01 on 21 November 2026.
    let run = |key: &str, columns: &str, values: &str| {
        format!(
            "INSERT INTO tb_time_limit_task (`key`, start_time, end_time, run_end, attempt, owner, daemon, {columns}) \
             VALUES ('{key}', 1795251600, 1795255200, 1795255200, {values})",
        )
    };
    for insert in [
        run(
            "Job@done@1",
            "retry_at, claimed_at, finished_at, status, history",
            &format!(
                "2, UNHEX('0f'), 'd-1', 1795255260, 1795255260.002, 1795255272.002, 1, '{history}'"
            ),
        ),
        run(
            "Job@runs@1",
            "claimed_at, lease_until",
            "1, UNHEX('0f'), 'd-1', 1795255200.5, UNIX_TIMESTAMP() + 300",
        ),
        run(
            "Job@dead@1",
            "claimed_at, finished_at, status, reason, history",
            &format!(
                "1, UNHEX('0f'), 'd-1', 1795255200.003, 1795255200.703, 2, 'exhausted', '{history}'"
            ),
        ),
        run(
            "Job@old@1",
            "finished_at, status",
            "1, UNHEX('0f'), 'd-1', 1795255212, 1",
        ),
    ] {
        pages.rig.run_sql(&insert).await;
    }
    let page = pages.body("/task?key=Job%40done%401").await;
    let expected = [
        "Created2026-11-21 09:00:00",
        "Due2026-11-21 10:00:00",
        "Attempt 1 started2026-11-21 10:00:003 ms late",
        "Attempt 1: failed2026-11-21 10:00:00ran 700 ms",
        "Attempt 2 started2026-11-21 10:01:002 ms late",
        "done2026-11-21 10:01:12ran 12 s",
    ];
    assert_eq!(steps(&page), expected, "{page}");

    let page = pages.body("/task?key=Job%40runs%401").await;
    let running = steps(&page);
    let [_, _, started, lease] = &running[..] else {
        panic!("{running:?}");
    };
    assert!(
        started.starts_with("Attempt 1 started2026-11-21 10:00:00500 ms late"),
        "{started}"
    );
    assert!(lease.starts_with("Lease ends"), "{lease}");

    let page = pages.body("/task?key=Job%40dead%401").await;
    let dead = steps(&page);
    assert_eq!(dead[2..4], expected[2..4]);
    assert_eq!(dead[4], "dead2026-11-21 10:00:00");

    // Of a version that stored no start.
    let page = pages.body("/task?key=Job%40old%401").await;
    assert_eq!(
        steps(&page)[2],
        "done2026-11-21 10:00:1212 s after it fell due"
    );

    let shell = Shell::of(&pages.rig);
    let shown = shell.json(&["show", "Job@done@1"]);
    assert_eq!(shown["started"], "2026-11-21T10:01:00.002Z");
    assert_eq!(shown["history"][0]["started"], "2026-11-21T10:00:00.003Z");
    let mut local = shell.command(&["--local", "show", "Job@done@1"]);
    let (code, local, error) = said(local.env("TZ", "Asia/Shanghai").output().unwrap());
    assert_eq!(code, 0, "{error}");
    for line in [
        "due           2026-11-21T18:00:00.000+08:00\n",
        "started       2026-11-21T18:01:00.002+08:00\n",
        "finished      2026-11-21T18:01:12.002+08:00\n",
        "history       2026-11-21T18:00:00.703+08:00  attempt 1",
    ] {
        assert!(local.contains(line), "{local}");
    }
    let shown = shell.json(&["show", "Job@old@1"]);
    assert_eq!(shown["started"], Value::Null);
}
