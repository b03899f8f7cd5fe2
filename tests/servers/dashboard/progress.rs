//! Progress of a running task, on its page and in the list.

use crate::dashboard::rig::Pages;
use crate::support::shell::Shell;

#[tokio::test]
async fn a_running_task_shows_how_far_it_is() {
    let pages = Pages::start("").await;
    let row = |key: &str, owner: &str, lease: &str| {
        format!(
            "('{key}', UNIX_TIMESTAMP() - 9, UNIX_TIMESTAMP() - 8, UNIX_TIMESTAMP() - 8, 1, UNHEX('{owner}'), 'd-1', \
             UNIX_TIMESTAMP() + {lease}, '{of} 40 row <4> of 10')",
            of = "0f".repeat(16)
        )
    };
    let rows = [
        row("Job@runs@1", &"0f".repeat(16), "300"),
        row("Job@runs@2", &"0e".repeat(16), "300"),
    ];
    pages
        .rig
        .run_sql(&format!(
            "INSERT INTO tb_time_limit_task (`key`, start_time, end_time, run_end, attempt, owner, daemon, lease_until, progress) \
             VALUES {}",
            rows.join(", ")
        ))
        .await;
    let text = "40 %, row &#60;4&#62; of 10";
    let page = pages.body("/task?key=Job%40runs%401").await;
    assert!(page.contains(text), "{page}");
    assert!(
        page.contains("<progress max=\"100\" value=\"40\""),
        "{page}"
    );
    let other = pages.body("/task?key=Job%40runs%402").await;
    assert!(!other.contains("40 %"), "of another claim: {other}");
    let list = pages.body("/tasks?state=running").await;
    assert_eq!(list.matches(text).count(), 1, "{list}");

    let shell = Shell::of(&pages.rig);
    let shown = shell.text(&["show", "Job@runs@1"]);
    assert!(
        shown.contains("progress      40 %, row <4> of 10\n"),
        "{shown}"
    );
    let other = shell.text(&["show", "Job@runs@2"]);
    assert!(!other.contains("progress"), "{other}");
}
