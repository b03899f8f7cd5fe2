//! Signed payloads.

use super::*;

#[tokio::test]
async fn only_tasks_signed_with_a_known_secret_run() {
    let diary = Diary::default();
    let mut handlers = jobs(&diary);
    handlers.wrap(VerifyPayload::any_of([
        "the secret that comes next".into(),
        SECRET.into(),
    ]));
    let mut kit = TestKit::new(handlers);
    let task = |arg: &str| Task::new("Job", "ok", [arg]).unwrap().payload(r#"{"n":1}"#);
    let tasks = kit.tasks();
    for (task, runs) in [
        (task("signed").sign(SECRET), true),
        (
            task("with the other").sign("the secret that comes next"),
            true,
        ),
        (task("without payload").sign(SECRET), true),
        (task("unsigned"), false),
        (
            task("by a stranger").sign("a secret of somebody else"),
            false,
        ),
    ] {
        let name = task.key().to_string();
        tasks.create(task, Due::NOW).await.unwrap();
        kit.advance(Duration::ZERO).await;
        let record = kit.task(&name).unwrap();
        let (state, payload) = (record.state, record.payload);
        assert_eq!(payload.as_deref(), Some(r#"{"n":1}"#), "{name}");
        assert_eq!(
            state,
            if runs { State::Done } else { State::Dead },
            "{name}"
        );
        assert_eq!(diary.read().is_empty(), !runs, "{name}");
    }
    kit.assert_dead(("Job", "ok", ["unsigned"]))
        .with_error("permanent failure: payload is not authentic");
}

#[tokio::test]
async fn a_signature_that_is_copied_to_another_task_is_not_authentic() {
    let mut handlers = jobs(&Diary::default());
    handlers.wrap(VerifyPayload::new(SECRET));
    let mut kit = TestKit::new(handlers);
    let signature =
        lapsed::task::sign(SECRET.as_bytes(), &"Job@ok@1".parse().unwrap(), Some("[1]"));
    for (key, payload) in [
        ("Job@ok@1", "[1]"),
        ("Job@ok@2", "[1]"),
        ("Job@ok@1@", "[1]"),
    ] {
        let mut row = NewTask::new(key.parse().unwrap(), START);
        // As somebody's SQL would.
        row.contents.payload = Some(format!(
            r#"{{"$lapsed":{{"signature":"{signature}"}},"payload":{payload}}}"#
        ));
        kit.ledger().create(&[row]).await.unwrap();
    }
    kit.advance(Duration::ZERO).await;
    kit.assert_ran(("Job", "ok", ["1"])).succeeded();
    kit.assert_dead(("Job", "ok", ["2"]));
    kit.assert_dead(("Job", "ok", ["1", ""]));
}

#[tokio::test]
async fn a_payload_may_not_look_like_an_envelope() {
    let task = Task::new("Job", "ok", [1]).unwrap();
    let task = task.payload(r#"{"a": 1, "$lapsed": {}}"#);
    let tasks = TestKit::new(Handlers::new()).tasks();
    let error = tasks.create(task, Due::NOW).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "payload has a top-level member `$lapsed`, which is reserved: expected another name"
    );
}

#[tokio::test]
async fn a_secret_that_can_be_guessed_signs_nothing() {
    let tasks = TestKit::new(Handlers::new()).tasks();
    let task = Task::new("Job", "ok", [1]).unwrap().sign("short");
    let error = tasks.create(task, Due::NOW).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the secret to sign with has 5 bytes, expected at least 16"
    );
}
