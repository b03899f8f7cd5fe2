//! Archived tasks: pages and the API show them, and offer nothing to do with them.

use serde_json::Value;

use crate::dashboard::rig::Pages;
use crate::support::shell::Shell;

#[tokio::test]
async fn archived_tasks_are_shown_and_offer_no_action() {
    let pages = Pages::start("retention = { done = '7d', archive = true }").await;
    let shell = Shell::of(&pages.rig);
    shell.text(&["migrate"]);
    pages
        .rig
        .run_sql(
            "INSERT INTO tb_time_limit_task (`key`, status, start_time, end_time, finished_at, last_error, reason) VALUES \
             ('Old@done@1', 1, UNIX_TIMESTAMP() - 900, UNIX_TIMESTAMP() - 800, UNIX_TIMESTAMP() - 700, NULL, NULL), \
             ('Old@dead@1', 2, UNIX_TIMESTAMP() - 900, UNIX_TIMESTAMP() - 800, UNIX_TIMESTAMP() - 700, 'no money', 'permanent')",
        )
        .await;
    let live = pages.body("/task?key=Old%40dead%401").await;
    assert!(live.contains("data-act=\"redrive\"") && !live.contains("data-archived"));
    shell.text(&["prune", "--older-than", "0s", "--state", "done,dead"]);

    // The search and the page of a key go on to the archive, and say so.
    let found = pages.get("/find?q=Old%40dead%401").await;
    assert_eq!(found.status, 303, "{}", found.head);
    assert!(
        found.head.contains("/task?key=old%40dead%401"),
        "{}",
        found.head
    );
    let page = pages.body("/task?key=Old%40dead%401").await;
    assert!(
        page.contains("data-archived") && page.contains("no money"),
        "{page}"
    );
    assert!(!page.contains("data-act="), "{page}");
    assert!(page.contains("lapsed show --archived"), "{page}");

    let list = pages.body("/tasks").await;
    assert!(list.contains("/tasks?archived=true"), "{list}");
    assert!(!list.contains("Old@dead@1"), "{list}");
    let list = pages.body("/tasks?archived=true").await;
    assert!(
        list.contains("Old@dead@1") && list.contains("Old@done@1"),
        "{list}"
    );
    assert!(!list.contains("data-bulk="), "{list}");
    let dead = pages.body("/tasks?archived=true&state=dead").await;
    assert!(
        dead.contains("Old@dead@1") && !dead.contains("Old@done@1"),
        "{dead}"
    );
    assert!(!dead.contains("data-bulk="), "{dead}");
    let link = list.split("/task?id=").nth(1).unwrap();
    let link = link
        .split('"')
        .next()
        .unwrap()
        .replace("&amp;", "&")
        .replace("&#38;", "&");
    assert!(link.ends_with("&archived=true"), "{link}");
    let page = pages.body(&format!("/task?id={link}")).await;
    assert!(page.contains("data-archived"), "{page}");

    let json = async |path: &str| -> (u16, Value) {
        let answer = pages.get(path).await;
        (answer.status, serde_json::from_str(&answer.body).unwrap())
    };
    let (_, listed) = json("/v1/tasks?archived=true&state=dead").await;
    assert_eq!(listed["tasks"].as_array().unwrap().len(), 1);
    assert_eq!(listed["tasks"][0]["archived"], true);
    let (status, _) = json("/v1/tasks/Old@dead@1").await;
    assert_eq!(status, 404);
    let (status, task) = json("/v1/tasks/Old@dead@1?archived=true").await;
    assert_eq!((status, &task["reason"]), (200, &Value::from("permanent")));
    assert_eq!(task["archived"], true);
    let id = task["id"].as_str().unwrap();
    let (_, by_id) = json(&format!("/v1/tasks/{id}?archived=true")).await;
    assert_eq!(by_id, task);
    let (status, problem) = json("/v1/tasks?archived=maybe").await;
    assert_eq!(status, 400, "{problem}");
}
