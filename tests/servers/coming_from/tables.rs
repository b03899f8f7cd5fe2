//! docs/coming-from/jobs-table.md.

use serde_json::json;

use super::owner::{Fate, Owner, commands, tasks};

const PAGE: &str = "jobs-table.md";

/// The statement of docs/scheduling.md that the page names.
fn insert() -> &'static str {
    let page = include_str!("../../../docs/scheduling.md");
    let (_, rest) = page
        .split_once("```sql\nINSERT INTO tb_time_limit_task")
        .unwrap();
    let end = rest.find("```").unwrap();
    let begin = page.find("INSERT INTO tb_time_limit_task").unwrap();
    &page[begin..begin + "INSERT INTO tb_time_limit_task".len() + end]
}

#[tokio::test]
async fn rows_of_a_jobs_table_run_once_through_everything() {
    let mut owner = Owner::new(PAGE, "job.php").await;
    owner.php(&[json!({ "do": "job.tables" })]);
    let part = tasks() / 3;
    let before = owner.schedule("before", "job.add", part, &json!({}));
    let cancelled = |owner: &Owner, name: &str| owner.wanted[name].fate == Fate::Cancelled;
    let cancels: Vec<_> = before
        .iter()
        .filter(|(name, _)| cancelled(&owner, name))
        .map(|(_, written)| json!({ "do": "job.cancel", "id": written["id"] }))
        .collect();
    owner.php(&cancels);
    // A worker was killed over this one: the page says what to do.
    let (left, written) = before.last().unwrap();
    assert_eq!(owner.wanted[left].fate, Fate::Runs);
    owner.php(&[json!({ "do": "job.leave", "id": written["id"] })]);
    owner.install();
    for command in commands(PAGE, "lapsed import seed002") {
        let words: Vec<&str> = command.iter().skip(1).map(String::as_str).collect();
        let (code, _, stderr) = owner.shell.run(&words);
        assert_eq!(code, 0, "{stderr}");
        assert!(
            stderr.contains("1 rows of `jobs` are `processing`"),
            "{stderr}"
        );
    }
    owner
        .rig
        .run_sql("UPDATE jobs SET status = 'pending', attempts = 0 WHERE status = 'processing'")
        .await;
    let again = commands(PAGE, "lapsed import seed002").pop().unwrap();
    let words: Vec<&str> = again.iter().skip(1).map(String::as_str).collect();
    owner.shell.text(&words);
    let mut daemon = owner.listen(&[]).await;
    let more = json!({ "sql": insert() });
    for batch in ["live", "restarted"] {
        let count = match batch {
            "live" => part,
            _ => tasks() - 2 * part,
        };
        let scheduled = owner.schedule(batch, "job.schedule", count, &more);
        let cancels: Vec<_> = scheduled
            .iter()
            .filter(|(name, _)| cancelled(&owner, name))
            .map(|(name, _)| json!({ "do": "job.unschedule", "name": name }))
            .collect();
        owner.php(&cancels);
        owner.restart(&mut daemon).await;
    }
    owner.all_is_well().await;
}
