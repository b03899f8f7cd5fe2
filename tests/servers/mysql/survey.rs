//! Figures of many rows, from a bounded number of them.

use lapsed::ledger::{Admin, DetailedStatsLimits};
use sqlx::Executor;

use crate::mysql::rig::{overdue, start};

#[tokio::test]
async fn a_survey_of_many_rows_is_of_a_part_and_says_so() {
    let (_server, ledger, _) = start().await;
    overdue(&ledger, 900).await;
    let limits = DetailedStatsLimits {
        rows: 500,
        entries: 5_000,
        dead: 500,
        done: 10,
    };
    let stats = ledger.detailed_stats(limits).await.unwrap();
    assert_eq!((stats.counts.pending, stats.counts.overdue), (900, 900));
    assert!(stats.counts.overdue_ms_max >= 900, "{stats:?}");
    assert_eq!(stats.methods[0].pending, 500);
    assert_eq!(stats.methods_of, Some(500));
    assert_eq!(stats.at_least, ["waiting", "running"]);
    let entries = 700;
    let stats = ledger
        .detailed_stats(DetailedStatsLimits { entries, ..limits })
        .await
        .unwrap();
    assert_eq!((stats.counts.pending, stats.counts.overdue), (700, 700));
    assert_eq!(stats.at_least, ["pending", "waiting", "running", "overdue"]);

    let mut connection = ledger.connection().await.unwrap();
    let done = "UPDATE tb_time_limit_task SET status = 1, attempt = 1, finished_at = UNIX_TIMESTAMP(NOW(3))";
    connection.execute(done).await.unwrap();
    let stats = ledger
        .detailed_stats(DetailedStatsLimits { entries, ..limits })
        .await
        .unwrap();
    assert_eq!((stats.counts.done, stats.at_least), (700, vec!["done"]));
    let took = stats.methods[0].due_to_done.unwrap();
    assert_eq!(took.count, 10, "those that fell due last");
    connection
        .execute("UPDATE tb_time_limit_task SET status = 2")
        .await
        .unwrap();
    let stats = ledger.detailed_stats(limits).await.unwrap();
    assert_eq!((stats.counts.dead, stats.methods[0].dead), (900, 500));
    assert_eq!(stats.methods_of_dead, Some(500));
}
