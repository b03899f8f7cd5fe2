//! What the assertions of the test kit accept, and what they say when they fail.

use super::*;

/// What an assertion says when it does not hold.
fn complaint<T>(assertion: impl FnOnce() -> T) -> String {
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(assertion));
    let panic = panic.err().expect("the assertion holds, and should not");
    *panic.downcast::<String>().unwrap()
}

#[tokio::test]
async fn assertions_that_fail_say_what_is_there() {
    let mut kit = TestKit::new(jobs());
    create(&kit.tasks(), "ok", "1", secs(1)).await;
    create(&kit.tasks(), "ok", "2", HOUR).await;
    create(&kit.tasks(), "fail", "3", secs(2)).await;
    kit.advance(secs(10)).await;
    assert_eq!(
        complaint(|| kit.assert_scheduled(("Job", "ok", [1]))),
        "expected `Job@ok@1` to be scheduled, but it is done; it is 2030-01-01T00:00:10.000Z, and what is scheduled is\n  \
           Job@fail@3  waiting, due 2030-01-01T00:00:17.000Z, in 7s\n  \
           Job@ok@2  pending, due 2030-01-01T01:00:00.000Z, in 3590s"
    );
    assert_eq!(
        complaint(|| kit.assert_scheduled(("Job", "ok", [2])).due_in(HOUR)),
        "expected `Job@ok@2` to be due at 2030-01-01T01:00:10.000Z (in 3600s), but it is due at 2030-01-01T01:00:00.000Z (in 3590s)"
    );
    assert_eq!(
        complaint(|| kit.assert_ran(("Job", "ok", [2]))),
        "expected `Job@ok@2` to have run, but it has not: it is pending, due 2030-01-01T01:00:00.000Z; \
         it is 2030-01-01T00:00:10.000Z, and what ran is\n  \
           2030-01-01T00:00:01.000Z  Job@ok@1  run 1 succeeded, done\n  \
           2030-01-01T00:00:02.000Z  Job@fail@3  run 1 failed, waiting until 2030-01-01T00:00:17.000Z: failure 1"
    );
    assert_eq!(
        complaint(|| kit.assert_dead(("Job", "fail", [3]))),
        "expected `Job@fail@3` to be dead, but it is waiting (failure 1); its runs were\n  \
           2030-01-01T00:00:02.000Z  Job@fail@3  run 1 failed, waiting until 2030-01-01T00:00:17.000Z: failure 1"
    );
    assert_eq!(
        complaint(|| kit.assert_dead(("Job", "fail", [4]))),
        "expected `Job@fail@4` to be dead, but there is no such task; its runs were\n  nothing"
    );
    complaint(|| kit.assert_not_scheduled(("Job", "ok", [2])));
    complaint(|| kit.assert_not_ran(("Job", "ok", [1])));
    complaint(|| kit.assert_ran(("Job", "ok", [1])).times(2));
    complaint(|| kit.assert_ran(("Job", "ok", [1])).at(START));
    complaint(|| kit.assert_ran(("Job", "fail", [3])).succeeded());
    complaint(|| kit.assert_scheduled(("Job", "ok", [2])).with_tag("shop"));
    complaint(|| {
        kit.assert_scheduled(("Job", "ok", [2]))
            .with_payload(&serde_json::json!(1))
    });
    complaint(|| {
        kit.assert_scheduled(("Job", "ok", [2]))
            .due_between(secs(0), secs(3589))
    });
    kit.assert_scheduled(("Job", "ok", [2]))
        .due_between(secs(0), secs(3590));
}

#[tokio::test]
async fn scheduled_tasks_are_found_by_tag_and_payload() {
    let kit = TestKit::new(jobs());
    let task = Task::new("Job", "ok", [1]).unwrap();
    let task = task.tag("shop").payload(r#"{ "b": 1, "a": 2 }"#);
    kit.tasks().create(task, secs(1)).await.unwrap();
    kit.assert_scheduled(("Job", "ok", [1]))
        .due_in(secs(1))
        .with_tag("shop")
        .with_payload(&serde_json::json!({"a": 2, "b": 1}));
}
