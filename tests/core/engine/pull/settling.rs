//! Settling tasks as workers report.

use lapsed::engine::{PullError, Report};
use lapsed::ledger::memory::MemoryLedger;
use lapsed::ledger::{Admin, CancelAnswer, Ledger, Renewal, Settled};
use lapsed::task::{Reason, RetryAdvice, State, UnixMs};
use lapsed::{Handlers, Recurrence};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

use super::{MAIL, done, failed, key, keys, mail, take, take_one, take_one_within};
use crate::engine::rig::{START, seconds, start_on, until};

#[tokio::test(start_paused = true)]
async fn a_failure_is_tried_again_by_the_policy_of_the_route() {
    let rig = mail("retry = { max_attempts = 2, ladder = ['5s'], jitter = 0 }\n");
    rig.due_now("Mail@send@1").await;
    let first = take_one(&rig).await;
    let queues = rig.status.pull();
    let report = failed(RetryAdvice::ByPolicy);
    queues.settle(&first.claim, report.clone()).await.unwrap();
    let before = rig.ledger.clock().now();
    let second = take_one(&rig).await;
    assert_eq!(second.task.attempt(), 2);
    let waited = rig.ledger.clock().now().since(before);
    assert!(waited >= seconds(5) && waited < seconds(6), "{waited:?}");
    queues.settle(&second.claim, report).await.unwrap();
    let record = rig.record("Mail@send@1").await;
    assert_eq!(
        (record.state, record.reason),
        (State::Dead, Some(Reason::Exhausted))
    );
    assert_eq!(record.history[0].daemon, "w", "the worker that failed");
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_decides_when_and_whether_a_failure_is_tried_again() {
    let rig = mail("");
    let queues = rig.status.pull();
    for n in 0..3 {
        rig.due_now(&format!("Mail@send@{n}")).await;
    }
    let mut taken = Vec::new();
    while taken.len() < 3 {
        taken.extend(take(&queues, 3).await);
    }
    taken.sort_by_key(|leased| leased.task.key().to_string());
    let reports = [
        failed(RetryAdvice::After(Duration::from_millis(200))),
        failed(RetryAdvice::Never),
        Report::Snoozed(Duration::from_millis(200)),
    ];
    for (leased, report) in taken.iter().zip(reports) {
        queues.settle(&leased.claim, report).await.unwrap();
    }
    let before = rig.ledger.clock().now();
    let mut again = Vec::new();
    while again.len() < 2 {
        again.extend(take(&queues, 3).await);
    }
    let waited = rig.ledger.clock().now().since(before);
    assert!(
        waited < Duration::from_millis(400),
        "no echo of the first hand-over: {waited:?}"
    );
    again.sort_by_key(|leased| leased.task.key().to_string());
    assert_eq!(keys(&again), ["Mail@send@0", "Mail@send@2"]);
    let attempts: Vec<u16> = again.iter().map(|leased| leased.task.attempt()).collect();
    assert_eq!(attempts, [2, 1], "a snooze counts no attempt");
    let dead = rig.record("Mail@send@1").await;
    assert_eq!(
        (dead.state, dead.reason),
        (State::Dead, Some(Reason::Permanent))
    );
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_released_task_is_given_out_at_once_without_counting_an_attempt() {
    let rig = mail("");
    rig.due_now("Mail@send@1").await;
    for _ in 0..5 {
        let leased = take_one(&rig).await;
        assert_eq!(leased.task.attempt(), 1);
        let before = rig.ledger.clock().now();
        let queues = rig.status.pull();
        queues
            .settle(&leased.claim, Report::Released)
            .await
            .unwrap();
        let passed = rig.ledger.clock().now().since(before);
        assert!(passed < Duration::from_millis(100), "{passed:?}");
    }
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_result_is_kept_if_it_is_json() {
    let rig = mail("");
    rig.due_now("Mail@send@1").await;
    let leased = take_one(&rig).await;
    let queues = rig.status.pull();
    let with = |json: &str| Report::Done {
        result: Some(json.to_owned()),
    };
    let too_long = format!("\"{}\"", "x".repeat(64 * 1024));
    for bad in ["", "{", "no", too_long.as_str()] {
        let refused = queues.settle(&leased.claim, with(bad)).await;
        assert!(matches!(refused, Err(PullError::Result)), "{refused:?}");
    }
    queues
        .settle(&leased.claim, with(r#"{"id":7}"#))
        .await
        .unwrap();
    let record = rig.record("Mail@send@1").await;
    assert_eq!(record.result.as_deref(), Some(r#"{"id":7}"#));
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_report_may_be_repeated_and_one_of_a_lost_claim_is_fenced() {
    let rig = mail("");
    let queues = rig.status.pull();
    rig.due_now("Mail@send@1").await;
    let first = take_one(&rig).await;
    sleep(seconds(11)).await;
    let second = take_one(&rig).await;
    for report in [done(), failed(RetryAdvice::ByPolicy), Report::Released] {
        let fenced = queues.settle(&first.claim, report).await;
        assert!(matches!(fenced, Err(PullError::Fenced(_))), "{fenced:?}");
    }
    assert_eq!(queues.renew(&[first.claim]).await.unwrap(), [Renewal::Lost]);
    for _ in 0..2 {
        let settled = queues.settle(&second.claim, done()).await;
        assert_eq!(settled.unwrap(), Settled::Applied);
    }
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_renewed_lease_lasts() {
    let rig = mail("");
    rig.due_now("Mail@send@1").await;
    let leased = take_one(&rig).await;
    let queues = rig.status.pull();
    for _ in 0..10 {
        sleep(seconds(7)).await;
        let renewed = queues.renew(std::slice::from_ref(&leased.claim)).await;
        assert_eq!(renewed.unwrap(), [Renewal::Held]);
    }
    let settled = queues.settle(&leased.claim, done()).await;
    assert_eq!(settled.unwrap(), Settled::Applied);
    assert_eq!(rig.record("Mail@send@1").await.attempt, 1);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_token_is_valid_after_a_restart_and_on_another_daemon() {
    let ledger = Arc::new(MemoryLedger::new(START));
    let rig = start_on(Arc::clone(&ledger), MAIL, Handlers::new());
    rig.due_now("Mail@send@1").await;
    rig.due_now("Mail@send@2").await;
    let tokens = [
        take_one(&rig).await.claim.to_string(),
        take_one(&rig).await.claim.to_string(),
    ];
    rig.stop().await;
    let rig = start_on(Arc::clone(&ledger), MAIL, Handlers::new());
    sleep(seconds(5)).await;
    let queues = rig.status.pull();
    for (token, report) in tokens.iter().zip([done(), failed(RetryAdvice::Never)]) {
        let claim = queues.claim(token).await.unwrap();
        assert_eq!(
            queues.settle(&claim, report).await.unwrap(),
            Settled::Applied
        );
    }
    let stats = ledger.stats().await.unwrap();
    assert_eq!((stats.done, stats.dead), (1, 1));
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_report_during_the_drain_is_written_and_one_after_it_is_refused() {
    let rig = mail("");
    rig.due_now("Mail@send@1").await;
    rig.due_now("Mail@send@2").await;
    let (first, second) = (take_one(&rig).await, take_one(&rig).await);
    let queues = rig.status.pull();
    let (settled, ledger) = tokio::join!(queues.settle(&first.claim, done()), rig.stop());
    assert_eq!(settled.unwrap(), Settled::Applied);
    let refused = queues.settle(&second.claim, done()).await;
    assert!(matches!(refused, Err(PullError::NotRunning)), "{refused:?}");
    assert_eq!(ledger.stats().await.unwrap().done, 1);
}

#[tokio::test(start_paused = true)]
async fn a_recurring_task_goes_on_to_its_next_occurrence() {
    let rig = mail("");
    let every = Recurrence::every(seconds(60)).unwrap();
    let created = rig.tasks.create_recurring(key("Mail@digest"), every);
    created.await.unwrap();
    let mut dues: Vec<UnixMs> = Vec::new();
    for report in [done(), failed(RetryAdvice::Never), done()] {
        let leased = take_one_within(&rig, seconds(120)).await;
        dues.push(leased.task.due());
        rig.status
            .pull()
            .settle(&leased.claim, report)
            .await
            .unwrap();
    }
    let steps: Vec<Duration> = dues.windows(2).map(|two| two[1].since(two[0])).collect();
    assert_eq!(steps, [seconds(60), seconds(60)]);
    assert_eq!(rig.record("Mail@digest").await.state, State::Pending);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_cancellation_during_the_run_is_honoured() {
    let rig = mail("");
    let queues = rig.status.pull();
    for (key, report, state) in [
        (
            "Mail@send@1",
            failed(RetryAdvice::ByPolicy),
            State::Cancelled,
        ),
        ("Mail@send@2", Report::Released, State::Cancelled),
        ("Mail@send@3", done(), State::Done),
    ] {
        rig.due_now(key).await;
        let leased = take_one(&rig).await;
        rig.tasks.cancel(self::key(key)).await.unwrap();
        queues.settle(&leased.claim, report).await.unwrap();
        assert_eq!(rig.record(key).await.state, state, "{key}");
    }
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_task_forced_to_run_is_delivered_although_its_first_worker_left() {
    let rig = mail("");
    let queues = rig.status.pull();
    for (key, report, state) in [
        ("Mail@send@1", done(), State::Done),
        (
            "Mail@send@2",
            failed(RetryAdvice::ByPolicy),
            State::Cancelled,
        ),
    ] {
        rig.due_now(key).await;
        let lost = queues.take("mail", 1, Some(seconds(5)), "").await.unwrap();
        let answer = rig.tasks.cancel(self::key(key)).await.unwrap();
        assert_eq!(answer, CancelAnswer::Running);
        // Its reply could not be written.
        drop(lost);
        let leased = take_one(&rig).await;
        assert_eq!(
            (leased.task.key().as_str(), leased.task.attempt()),
            (key, 1)
        );
        queues.settle(&leased.claim, report).await.unwrap();
        assert_eq!(rig.record(key).await.state, state, "{key}");
        let none = queues.take("mail", 1, Some(seconds(5)), "").await.unwrap();
        assert!(none.tasks().is_empty(), "{key}");
    }
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_removed_route_settles_the_tasks_that_workers_have() {
    let rig = mail("");
    rig.due_now("Mail@send@1").await;
    let leased = take_one(&rig).await;
    rig.parts.router.reload(&lapsed::Config::default());
    let queues = rig.status.pull();
    let taken = queues.take("mail", 1, None, "").await;
    assert!(matches!(taken, Err(PullError::UnknownQueue(_))));
    let settled = queues.settle(&leased.claim, done()).await;
    assert_eq!(settled.unwrap(), Settled::Applied);
    until("the task is done", async || {
        rig.record("Mail@send@1").await.state == State::Done
    })
    .await;
    rig.stop().await;
}
