//! Jobs of Laravel and think-queue that no program of theirs has written like this. `coming_from/frameworks/leaving.rs` has those of
//! the packages.

use serde_json::{Value, json};

use super::{Report, import, tasks};
use crate::support::rig::Rig;
use crate::support::shell::Shell;

const SET: &str = "queues:default:delayed";

async fn add(rig: &Rig, set: &str, score: &str, member: &str) {
    let _: i64 = rig.redis_says(&["ZADD", set, score, member]).await;
}

async fn left(rig: &Rig, set: &str) -> i64 {
    rig.redis_says(&["ZCARD", set]).await
}

fn says(report: &Report, texts: &[&str]) {
    for text in texts {
        assert!(report.stderr.contains(text), "{text}: {}", report.stderr);
    }
}

#[tokio::test]
async fn a_string_job_keeps_due_time_data_and_attempts() {
    let rig = Rig::new("redis.key_prefix = 'shop_'").await;
    let shell = Shell::of(&rig);
    let due_s = rig.now_ms().await / 1_000 + 3_600;
    let due = due_s.to_string();
    let set = "shop_queues:default:delayed";
    let job = |job: &str, id: Value, more: Value| {
        let mut fields = json!({ "job": job, "data": { "to": 7 }, "attempts": 0 });
        for (name, value) in more.as_object().unwrap() {
            fields[name] = value.clone();
        }
        fields["id"] = id;
        fields.to_string()
    };
    let tried = json!({ "maxTries": 5, "attempts": 2, "timeout": 30, "uuid": "other" });
    let endless = json!({ "maxTries": 0, "uuid": "4f-5e" });
    for member in [
        job("App\\Jobs\\Mail@send", json!("a1"), tried),
        job("\\App\\Jobs\\Mail", Value::Null, endless),
        job("Mail@send", json!(17), json!({ "data": "" })),
    ] {
        add(&rig, set, &due, &member).await;
    }
    // Neither id nor uuid, and no data.
    let bare = r#"{"job":"Mail@bare"}"#;
    add(&rig, "shop_queues:{late}:delayed", &due, bare).await;

    for take in [&[][..], &["--take"]] {
        let report = import(&shell, &[&["laravel"], take].concat());
        assert_eq!((report.code, report.count("refused")), (0, 0));
        says(&report, &["1 jobs have limits of their own"]);
        let found = tasks(&rig).await;
        assert_eq!(found.len(), 4, "{found:?}");
        let of = |key: &str| {
            let task = found.get(key).unwrap_or_else(|| panic!("{key}: {found:?}"));
            assert_eq!(task.due, due_s * 1_000, "{key}");
            (task.payload.clone(), task.attempt, task.max_attempts)
        };
        let data = json!({ "to": 7 });
        assert_eq!(of("App\\Jobs\\Mail@send@a1"), (data.clone(), 2, Some(5)));
        assert_eq!(of("App\\Jobs\\Mail@fire@4f-5e"), (data, 0, None));
        assert_eq!(of("Mail@send@17"), (json!(""), 0, None));
        let digest = found.keys().find(|key| key.starts_with("Mail@bare@"));
        let (_, digits) = digest.unwrap().split_once("sha256-").unwrap();
        assert_eq!(digits.len(), 32);
    }
    assert_eq!(left(&rig, set).await, 0);
    assert_eq!(left(&rig, "shop_queues:{late}:delayed").await, 0);
}

#[tokio::test]
async fn what_is_no_string_job_stays_where_it_is_with_its_reason() {
    let rig = Rig::new("").await;
    let shell = Shell::of(&rig);
    let due = (rig.now_ms().await / 1_000 + 3_600).to_string();
    let object = json!({
        "job": "Illuminate\\Queue\\CallQueuedHandler@call", "id": "o1",
        "data": { "commandName": "App\\Jobs\\Bill", "command": "O:13:\"App\\Jobs\\Bill\":0:{}" },
    });
    let closure = json!({ "job": "think\\queue\\CallQueuedHandler@call", "id": "o2", "data": "" });
    let large = json!({ "job": "Mail@send", "id": "o3", "data": "x".repeat(70_000) });
    let huge = json!({ "job": "Mail@send", "id": "o4", "data": "x".repeat(1 << 20) });
    let refused = [
        (&due[..], "not json", "it is no job of a queue"),
        (&due, "[1]", "it is no job of a queue"),
        (&due, r#"{"data":1,"id":"n"}"#, "missing field `job`"),
        (
            &due,
            r#"{"job":["A","b"],"id":"l"}"#,
            "it is no job of a queue",
        ),
        (&due, r#"{"job":"","id":"e"}"#, "class `` does not fit"),
        (
            &due,
            r#"{"job":"Mail@","id":"m"}"#,
            "method `` does not fit",
        ),
        (
            &due,
            r#"{"job":"Mail@send@x","id":"x"}"#,
            "method `send@x` does not fit",
        ),
        (
            &due,
            r#"{"job":"Mail@send","id":"t","attempts":-1}"#,
            "it is no job of a queue",
        ),
        ("inf", r#"{"job":"Mail@send","id":"i"}"#, "is no time"),
        (
            &due,
            &object.to_string(),
            "job o1: it is a serialized object of `App\\Jobs\\Bill`, which only PHP can run",
        ),
        (
            &due,
            &closure.to_string(),
            "job o2: it is a serialized object of PHP",
        ),
        (&due, &large.to_string(), "job o3: payload has 70002 bytes"),
        (&due, &huge.to_string(), "it has 10486"),
    ]
    .map(|(score, member, why)| (score.to_owned(), member.to_owned(), why));
    for (score, member, _) in &refused {
        add(&rig, SET, score, member).await;
    }
    for id in ["one", "two"] {
        let job = json!({ "job": "Mail@send", "id": id, "data": id }).to_string();
        add(&rig, SET, &due, &job).await;
    }
    let report = import(&shell, &["laravel", "--take"]);
    let counts = report.counts(["created", "refused", "taken"]);
    assert_eq!(
        (report.code, counts),
        (1, [2, refused.len() as u64, 2]),
        "{}",
        report.stderr
    );
    for (_, _, why) in &refused {
        says(&report, &[why]);
    }
    assert_eq!(left(&rig, SET).await, refused.len() as i64);
    let keys: Vec<String> = tasks(&rig).await.into_keys().collect();
    assert_eq!(keys, ["Mail@send@one", "Mail@send@two"]);
}

#[tokio::test]
async fn jobs_with_one_id_do_not_become_one_task_and_rules_name_others() {
    let rig = Rig::new(
        "[[import]]\nsource = 'think-queue'\nqueue = 'mail'\njob = '^Mail@'\nkey = 'Post@{method}@{id}'",
    )
    .await;
    let shell = Shell::of(&rig);
    let due = (rig.now_ms().await / 1_000 + 3_600).to_string();
    let set = "{queues:mail}:delayed";
    for job in [
        r#"{"job":"Mail@send","id":"a","data":1}"#,
        r#"{"job":"Mail@send","id":"a","data":2}"#,
        r#"{"job":"Bill@send","id":"a","data":3}"#,
    ] {
        add(&rig, set, &due, job).await;
    }
    add(
        &rig,
        "{queues:bills}:delayed",
        &due,
        r#"{"job":"Mail@send","id":"b"}"#,
    )
    .await;
    let report = import(&shell, &["think-queue", "--queue", "mail", "--take"]);
    let counts = report.counts(["created", "refused", "taken"]);
    assert_eq!((report.code, counts), (1, [2, 1, 2]), "{}", report.stderr);
    says(&report, &["another job has its key `Post@send@a`"]);
    let keys: Vec<String> = tasks(&rig).await.into_keys().collect();
    assert_eq!(keys, ["Bill@send@a", "Post@send@a"]);
    assert_eq!(
        (
            left(&rig, set).await,
            left(&rig, "{queues:bills}:delayed").await
        ),
        (1, 1)
    );
}

#[tokio::test]
async fn a_set_of_many_pages_is_imported_and_a_key_of_another_type_is_an_error() {
    let rig = Rig::new("").await;
    let shell = Shell::of(&rig);
    let due_s = rig.now_ms().await / 1_000 + 3_600;
    const JOBS: usize = 5_000;
    for from in (0..JOBS).step_by(1_000) {
        let mut add = redis::cmd("ZADD");
        add.arg(SET);
        for number in from..from + 1_000 {
            // Many of one due time.
            let job = json!({ "job": "Mail@send", "id": format!("{number:05}"), "data": number });
            add.arg(due_s + number as i64 / 3_000).arg(job.to_string());
        }
        let () = add
            .query_async(&mut rig.redis_connection().await)
            .await
            .unwrap();
    }
    let report = import(&shell, &["laravel", "--take"]);
    let all = JOBS as u64;
    assert_eq!(
        report.counts(["created", "taken", "refused"]),
        [all, all, 0]
    );
    assert_eq!((tasks(&rig).await.len(), left(&rig, SET).await), (JOBS, 0));

    let () = rig.redis_says(&["SET", "queues:odd:delayed", "x"]).await;
    let (code, _, stderr) = shell.run(&["import", "laravel", "--queue", "odd"]);
    assert_eq!(code, 1);
    assert!(stderr.contains("count `queues:odd:delayed`"), "{stderr}");
    assert!(stderr.contains("WRONGTYPE"), "{stderr}");
    // Of all queues, those that are none are left out.
    let report = import(&shell, &["laravel"]);
    assert_eq!(
        (report.code, report.counts(["created", "refused"])),
        (0, [0, 0])
    );
    says(
        &report,
        &["no job waits there", "see also `--queue` and `--prefix`"],
    );
    let (code, _, stderr) = shell.run(&["import", "laravel", "--set", "x"]);
    assert_eq!(code, 2, "{stderr}");
}
