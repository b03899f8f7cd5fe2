//! Jobs of other systems, as `lapsed import` finds them: the system on the first line, the score and the member on the next two,
//! then the fields of the hash, each on a line.

use lapsed_cli::fuzzing::{Job, php_json, read_job, task_message};
use lapsed_core::task::is_invisible;
use serde::de::IgnoredAny;
use serde_json::Value;

pub fn run(input: &[u8]) {
    check_php(input);
    let message = task_message(input);
    assert!(message.is_ok_and(|bytes| bytes <= input.len()) || message_is_short(input));
    let mut lines = input.splitn(4, |byte| *byte == b'\n');
    let (Some(system), Some(score), Some(member)) = (lines.next(), lines.next(), lines.next())
    else {
        return;
    };
    let (Ok(system), Ok(score)) = (std::str::from_utf8(system), std::str::from_utf8(score)) else {
        return;
    };
    let fields: Vec<&[u8]> = match lines.next() {
        Some(rest) => rest.split(|byte| *byte == b'\n').collect(),
        None => Vec::new(),
    };
    let size = member.len() + fields.iter().map(|field| field.len()).sum::<usize>();
    match read_job(system, score, member, &fields) {
        // Of others it is the data of the job as it is; what is no JSON is refused where the task is created.
        Some(Ok(job)) => check_job(&job, size, ["asynq", "seed001"].contains(&system)),
        Some(Err(why)) => {
            assert!(!why.is_empty());
            check_text(&why);
        }
        None => {}
    }
}

fn check_job(job: &Job, size: usize, is_converted: bool) {
    assert!(
        (0..100_000_000_000_000).contains(&job.due.0),
        "{:?}",
        job.due
    );
    if let Some(payload) = &job.payload {
        if is_converted {
            serde_json::from_str::<IgnoredAny>(payload).expect("a payload is JSON");
        }
        assert!(
            payload.len() <= 6 * size + 100,
            "{} of {size}",
            payload.len()
        );
    }
    check_text(&job.shown);
}

fn check_text(text: &str) {
    assert!(text.len() <= 2_048, "{} bytes", text.len());
    assert!(!text.contains(is_invisible), "{text:?}");
}

fn check_php(input: &[u8]) {
    match php_json(input) {
        Ok(json) => {
            serde_json::from_str::<Value>(&json).unwrap_or_else(|error| panic!("{json}: {error}"));
            assert!(json.len() <= 6 * input.len() + 30, "{json}");
        }
        Err(why) => assert!(why.len() < 200 && !why.contains(is_invisible), "{why:?}"),
    }
}

fn message_is_short(input: &[u8]) -> bool {
    task_message(input).is_err_and(|why| why.len() < 100)
}
