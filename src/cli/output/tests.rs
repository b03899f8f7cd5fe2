use lapsed::task::{How, State, TaskKey, UnixMs};

use super::*;

#[test]
fn how_a_run_ended_is_said_once() {
    let attempt_error = |how, error: &str| AttemptError {
        how,
        attempt: 1,
        started: None,
        at: UnixMs(0),
        error: error.to_owned(),
        daemon: "host:1".to_owned(),
        crashes: 0,
        snoozes: 0,
    };
    for (how, error, expected) in [
        (
            How::Expired,
            "expired: due 2 h ago",
            "not run  expired: due 2 h ago",
        ),
        (How::Failed, "failed over", "attempt 1  failed: failed over"),
        (How::Failed, "", "attempt 1  failed"),
    ] {
        let line = attempt_error_line(&attempt_error(how, error));
        let expected = format!("1970-01-01T00:00:00.000Z  {expected}  (host:1)");
        assert_eq!(line, expected);
    }
}

#[test]
fn what_a_worker_says_of_a_task_moves_no_cursor_and_begins_no_line() {
    const HOSTILE: &str = "\u{1b}]0;T\u{7}\u{1b}[2Jfine\r\nstate         done\u{9b}1;1H\u{202e}";
    let task = TaskRecord {
        id: "1-2".to_owned(),
        key: TaskKey::parse("Mail@send@gnp.\u{202e}exe").unwrap(),
        state: State::Dead,
        due: UnixMs(0),
        due_at: UnixMs(0),
        created: UnixMs(0),
        attempt: 1,
        crashes: 0,
        max_attempts: None,
        daemon: HOSTILE.to_owned(),
        lease_until: None,
        started: None,
        progress: None,
        cancel_requested: false,
        tag: Some(HOSTILE.to_owned()),
        payload: Some(HOSTILE.to_owned()),
        after: None,
        traceparent: None,
        recurrence: None,
        latest_occurrence: None,
        last_error: Some(HOSTILE.to_owned()),
        reason: None,
        history: vec![AttemptError {
            how: How::Failed,
            attempt: 1,
            started: None,
            at: UnixMs(0),
            error: HOSTILE.to_owned(),
            daemon: HOSTILE.to_owned(),
            crashes: 0,
            snoozes: 0,
        }],
        result: Some(HOSTILE.to_owned()),
        finished: None,
        adopted: false,
        archived: false,
    };
    let text = task_lines(&TaskView::single(&task, &Paused::default()));
    let titles = text
        .lines()
        .map(|line| line.split_whitespace().next().unwrap());
    let titles: Vec<&str> = titles.collect();
    assert_eq!(
        titles.iter().filter(|title| **title == "state").count(),
        1,
        "{text}"
    );
    let lines = [
        text,
        first_line(HOSTILE),
        visible_json(&serde_json::to_string(&task).unwrap()),
    ];
    for line in lines.iter().flat_map(|text| text.lines()) {
        assert!(!line.contains(is_invisible), "{line:?}");
    }
    let json: serde_json::Value = serde_json::from_str(&lines[2]).unwrap();
    assert_eq!(json["last_error"], HOSTILE);
}

#[test]
fn what_happened_one_time_is_said_in_the_singular() {
    let line = |how, crashes, snoozes| {
        attempt_error_line(&AttemptError {
            how,
            attempt: 3,
            started: None,
            at: UnixMs(0),
            error: String::new(),
            daemon: "host:1".to_owned(),
            crashes,
            snoozes,
        })
    };
    for (how, crashes, snoozes, expected) in [
        (How::Snoozed, 0, 1, "snoozed once"),
        (How::Snoozed, 0, 2, "snoozed 2 times"),
        (How::Failed, 1, 0, "failed after 1 crash"),
        (How::Failed, 2, 0, "failed after 2 crashes"),
    ] {
        let expected = format!("1970-01-01T00:00:00.000Z  attempt 3  {expected}  (host:1)");
        assert_eq!(line(how, crashes, snoozes), expected);
    }
}

#[test]
fn an_error_of_the_history_is_whole_unless_it_is_marked() {
    assert_eq!(beginning("connection refused\n"), "connection refused");
    assert_eq!(beginning("one\ntwo"), "one..");
    assert_eq!(beginning(&"x".repeat(496)).len(), 496);
    // The full length that the ledger keeps: there was more.
    assert!(beginning(&"x".repeat(HISTORY_ERROR_BYTES_MAX)).ends_with("x.."));
}
