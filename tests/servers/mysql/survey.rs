//! Figures of many rows, from a bounded number of them.

use lapsed::ledger::{Catalog, SurveyLimits};
use sqlx::Executor;

use crate::mysql::rig::{overdue, start};

#[tokio::test]
async fn a_survey_of_many_rows_is_of_a_part_and_says_so() {
    let (_server, ledger, _) = start().await;
    overdue(&ledger, 900).await;
    let limits = SurveyLimits {
        rows: 500,
        entries: 5_000,
        dead: 500,
        done: 10,
    };
    let survey = ledger.survey(limits).await.unwrap();
    assert_eq!((survey.counts.pending, survey.counts.overdue), (900, 900));
    assert!(survey.counts.overdue_ms_max >= 900, "{survey:?}");
    assert_eq!(survey.methods[0].pending, 500);
    assert_eq!(survey.methods_of, Some(500));
    assert_eq!(survey.at_least, ["waiting", "running"]);
    let entries = 700;
    let survey = ledger
        .survey(SurveyLimits { entries, ..limits })
        .await
        .unwrap();
    assert_eq!((survey.counts.pending, survey.counts.overdue), (700, 700));
    assert_eq!(
        survey.at_least,
        ["pending", "waiting", "running", "overdue"]
    );

    let mut connection = ledger.connection().await.unwrap();
    let done = "UPDATE tb_time_limit_task SET status = 1, attempt = 1, finished_at = UNIX_TIMESTAMP(NOW(3))";
    connection.execute(done).await.unwrap();
    let survey = ledger
        .survey(SurveyLimits { entries, ..limits })
        .await
        .unwrap();
    assert_eq!((survey.counts.done, survey.at_least), (700, vec!["done"]));
    let took = survey.methods[0].due_to_done.unwrap();
    assert_eq!(took.count, 10, "those that fell due last");
    connection
        .execute("UPDATE tb_time_limit_task SET status = 2")
        .await
        .unwrap();
    let survey = ledger.survey(limits).await.unwrap();
    assert_eq!((survey.counts.dead, survey.methods[0].dead), (900, 500));
    assert_eq!(survey.methods_of_dead, Some(500));
}
