//! What is found of the delayed queues of frameworks.

use lapsed_doctor::{self as doctor, Severity};

use crate::doctor::rig::{Result, assert_contains, config_with, finding, ledger, redis, run};

const SETTINGS: &str = "delayed_sets = [
    { profile = 'laravel', queue = 'default', prefix = 'shop_' },
    { profile = 'webman' },
]";

#[tokio::test]
async fn the_sets_are_looked_at_also_if_the_timer_needs_no_redis() -> Result {
    let redis = redis().await?;
    let settings = format!("timer = 'ledger_poll'\n{SETTINGS}");
    let config = config_with(
        &redis.url(),
        &ledger("delayed_sets_polled").await?,
        &settings,
    )?;
    let set = "shop_queues:default:delayed";
    let job = ["ZADD", set, "1", r#"{"id":"b","attempts":0}"#];
    let _: i64 = run(&redis, &job).await?;
    let report = doctor::examine(&config).await;
    let stuck = finding(&report, "redis.delayed_sets", Severity::Warning);
    assert_contains(&stuck.found, "overdue by more than a minute");
    Ok(())
}

#[tokio::test]
async fn what_keeps_the_jobs_of_a_framework_from_their_list_is_said_of_each_set() -> Result {
    let redis = redis().await?;
    let config = config_with(&redis.url(), &ledger("delayed_sets").await?, SETTINGS)?;
    let check = "redis.delayed_sets";
    let report = doctor::examine(&config).await;
    let absent = finding(&report, check, Severity::Note);
    assert_contains(
        &absent.found,
        "`shop_queues:default:delayed` does not exist",
    );
    assert!(report.worst() < Severity::Warning, "{report}");

    let set = "shop_queues:default:delayed";
    let webman = "{redis-queue}-delayed";
    for [set, score, member] in [
        [set, "1795291200", r#"{"id":"a","attempts":0}"#],
        [set, "1", r#"{"id":"b","attempts":0}"#],
        [set, "1795291200000", r#"{"id":"c","attempts":0}"#],
        [webman, "4102444800", "of something else"],
        [
            webman,
            "4102444801",
            r#"{"id":"1","queue":"mail","data":[]}"#,
        ],
    ] {
        let _: i64 = run(&redis, &["ZADD", set, score, member]).await?;
    }
    for list in ["shop_queues:default:notify", "{redis-queue}-waitingmail"] {
        let _: String = run(&redis, &["SET", list, "1"]).await?;
    }
    let report = doctor::examine(&config).await;
    let said = |severity| {
        let of_sets = report.findings.iter().filter(|it| it.check == check);
        let of_sets = of_sets.filter(|it| it.severity == severity);
        let texts: Vec<&str> = of_sets.map(|it| &it.found[..]).collect();
        texts.join("\n")
    };
    let good = said(Severity::Ok);
    assert_contains(&good, "`shop_queues:default:delayed` has 3 jobs");
    assert_contains(&good, "`{redis-queue}-delayed` has 2 jobs");
    let errors = said(Severity::Error);
    assert_contains(
        &errors,
        "`shop_queues:default:notify` is a string, expected a list",
    );
    assert_contains(
        &errors,
        "`{redis-queue}-waitingmail` is a string, expected a list",
    );
    let warnings = said(Severity::Warning);
    assert_contains(
        &warnings,
        "1 of the first 2 jobs of `{redis-queue}-delayed`",
    );
    assert_contains(
        &warnings,
        "1 jobs of `shop_queues:default:delayed` have scores in milliseconds",
    );
    assert_contains(
        &warnings,
        "jobs of `shop_queues:default:delayed` are overdue",
    );
    finding(&report, check, Severity::Error);
    finding(&report, check, Severity::Warning);

    let _: i64 = run(&redis, &["DEL", set]).await?;
    let _: i64 = run(&redis, &["RPUSH", set, "job"]).await?;
    let report = doctor::examine(&config).await;
    let wrong = finding(&report, check, Severity::Error);
    assert_contains(
        &wrong.found,
        "`shop_queues:default:delayed` is a list, expected a sorted set",
    );
    Ok(())
}
