use super::*;

const NOW: UnixMs = UnixMs(1_795_291_200_000);

fn refused(json: &str) -> String {
    let request = TaskSpec::from_json(json.as_bytes()).and_then(|spec| spec.resolve(NOW));
    request.unwrap_err().to_string()
}

#[test]
fn a_member_that_does_not_fit_is_named() {
    for (json, expected) in [
        (
            r#"{"key":"C@m","in":"1s","tag":7}"#,
            "`tag`: invalid type: integer `7`, expected a string",
        ),
        (
            r#"{"key":"C@m","in":30}"#,
            "`in`: invalid type: integer `30`, expected a duration with its unit, such as \"30m\" or \"1500ms\"",
        ),
        (
            r#"{"payload":[1],"max_attempts":70000}"#,
            "`max_attempts`: invalid value: integer `70000`, expected a whole number up to 65535",
        ),
        (
            r#"{"times":-1}"#,
            "`times`: invalid type: integer `-1`, expected a whole number up to 4294967295",
        ),
        (
            r#"{"if_pending":"maybe"}"#,
            "`if_pending`: unknown variant `maybe`, expected one of `move`, `keep`, `refuse`",
        ),
        (
            r#"{"unique":1}"#,
            "`unique`: invalid type: integer `1`, expected a boolean",
        ),
    ] {
        assert_eq!(refused(json), expected);
    }
    assert!(
        refused(r#"{"pay_load":1}"#).starts_with("unknown field `pay_load`, expected one of `key`")
    );
    assert!(refused("[1]").starts_with("expected a JSON object such as {\"key\""));
    assert!(refused(r#"{"key":"#).starts_with("expected a JSON object such as {\"key\""));
}

#[test]
fn members_that_exclude_each_other_are_refused() {
    for (json, expected) in [
        (r#"{"in":"1s"}"#, "expected `key`, or `class` and `method`"),
        (
            r#"{"key":"C@m","class":"C","in":"1s"}"#,
            "expected either `key`, or `class` and `method` with optional `args`",
        ),
        (
            r#"{"key":"C@m","in":"1s","at":"2026-11-21T20:00:00Z"}"#,
            "expected either `in` or `at`, found both",
        ),
        (
            r#"{"key":"C@m"}"#,
            "expected `in` or `at`, or `every` or `cron` for a recurring task",
        ),
        (
            r#"{"key":"C@m","in":"1s","tz":"UTC"}"#,
            "expected `every` or `cron` with the other options of a recurring task",
        ),
        (
            r#"{"key":"C@m","every":"1s","cron":"@daily"}"#,
            "expected one of `every` and `cron`",
        ),
    ] {
        assert_eq!(refused(json), expected);
    }
}

#[test]
fn a_spec_becomes_a_task_once_or_recurring() {
    let resolve = |json: &str| {
        TaskSpec::from_json(json.as_bytes())
            .unwrap()
            .resolve(NOW)
            .unwrap()
    };
    let payload = r#"{"n":12345678901234567890.10}"#;
    let once = resolve(&format!(
        r#"{{"class":"C","method":"m","args":["1"],"in":"5s","payload":{payload},"tag":"t","max_attempts":3,"if_pending":"keep"}}"#
    ));
    let task = Task::new("C", "m", [1])
        .unwrap()
        .payload(payload)
        .tag("t")
        .max_attempts(3);
    let due = Due::parse_delay("5s").unwrap();
    assert_eq!(
        once,
        TaskRequest::Once(task.if_pending(IfPending::Keep), due)
    );
    let recurring =
        resolve(r#"{"key":"C@m","every":"1m","in":"5s","catch_up":"all","catch_up_max":7}"#);
    let every = Recurrence::every(std::time::Duration::from_secs(60)).unwrap();
    let every = every
        .starting(UnixMs(NOW.0 + 5_000))
        .catch_up(CatchUp::All)
        .catch_up_max(7);
    let task = Task::new("C", "m", [""; 0]).unwrap();
    assert_eq!(recurring, TaskRequest::Recurring(task, every));
}
