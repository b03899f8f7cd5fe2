//! `lapsed pause`, `resume`, `pauses`, and what the other commands say of what is paused.

use std::process::Output;

use serde_json::Value;

use crate::support::program::said;
use crate::support::rig::Rig;
use crate::support::shell::Shell;
use crate::support::tasks::create;

/// The program on a rig's servers.
struct Program(Shell);

impl Program {
    fn run(&self, arguments: &str) -> Output {
        let words = words(arguments);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut command = self.0.command(&words);
        command.env("USER", "ada").env_remove("SUDO_USER");
        command.output().unwrap()
    }

    /// What it prints, which must go well.
    fn says(&self, arguments: &str) -> String {
        let output = self.run(arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments}: {error}");
        String::from_utf8(output.stdout)
            .unwrap()
            .trim_end()
            .to_owned()
    }

    /// Its values, one from a line.
    fn json(&self, arguments: &str) -> Vec<Value> {
        let text = self.says(&format!("{arguments} --json"));
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
        lines.collect()
    }

    /// Its exit code and what it complains about.
    fn refuses(&self, arguments: &str) -> (i32, String) {
        let output = self.run(arguments);
        let error = String::from_utf8(output.stderr).unwrap();
        (output.status.code().unwrap(), error)
    }
}

/// Words are separated by a blank; `_` stands for one within a word.
fn words(arguments: &str) -> Vec<String> {
    let words = arguments.split(' ');
    words.map(|word| word.replace('_', " ")).collect()
}

async fn program() -> (Rig, Program) {
    let rig = Rig::new("").await;
    let program = Program(Shell::of(&rig));
    (rig, program)
}

#[tokio::test]
async fn pausing_and_resuming_twice_is_answered_clearly() {
    let (_rig, program) = program().await;
    assert_eq!(program.says("pauses"), "nothing is paused");
    assert_eq!(
        program.says("pause Order@close --reason prices_are_wrong"),
        "`Order@close` is paused: running tasks finish, and no task of it starts after the next 2 s"
    );
    let again = program.says("pause Order@close --reason another");
    assert!(
        again.starts_with("`Order@close` was paused already, since 20")
            && again.contains(" by ada@")
            && again.ends_with(": prices are wrong"),
        "{again}"
    );
    program.says("pause --all");
    let table = program.says("pauses");
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 3, "{table}");
    assert!(lines[0].contains("WHAT") && lines[0].contains("REASON"));
    assert!(lines[1].contains("Order@close") && lines[1].contains("prices are wrong"));
    assert!(lines[2].contains("everything"));

    let resumed = program.run("resume Order@close");
    assert!(resumed.status.success());
    let said = String::from_utf8_lossy(&resumed.stdout);
    assert!(
        said.starts_with("`Order@close` is resumed; paused since 20"),
        "{said}"
    );
    assert!(
        said.trim_end().ends_with("; but nothing starts yet"),
        "{said}"
    );
    let warned = String::from_utf8_lossy(&resumed.stderr);
    assert!(
        warned.contains("warning: still paused: everything, since 20"),
        "{warned}"
    );
    // Nothing was lifted, and it is still paused: that is not what was asked for.
    let (code, warned) = program.refuses("resume Order@close");
    assert_eq!(code, 1, "{warned}");
    assert!(
        program
            .says("resume --all")
            .starts_with("everything is resumed")
    );
    assert_eq!(
        program.says("resume --all"),
        "there was no pause of everything"
    );
    assert_eq!(
        program.says("resume Order@close"),
        "`Order@close` was not paused by that name"
    );
    assert_eq!(program.says("resume --held"), "nothing is held");
    assert_eq!(program.says("pauses --json"), "");
}

#[tokio::test]
async fn answers_in_json_have_every_field() {
    let (_rig, program) = program().await;
    let set = &program.json("pause Order@close --reason why")[0];
    assert_eq!(
        (
            &set["kind"],
            &set["class"],
            &set["method"],
            &set["reason"],
            &set["already"]
        ),
        (
            &"pause".into(),
            &"Order".into(),
            &"close".into(),
            &"why".into(),
            &false.into()
        )
    );
    assert!(set["by"].as_str().unwrap().starts_with("ada@"));
    assert!(set["since"].as_str().unwrap().ends_with('Z'));
    assert_eq!(set["due_before"], Value::Null);
    assert_eq!(program.json("pause Order@close")[0]["already"], true);
    program.json("pause --all");
    let listed = program.json("pauses");
    assert_eq!(listed.len(), 2);
    assert_eq!(listed[1]["class"], Value::Null);
    assert_eq!(program.json("stats")[0]["pauses"], Value::Array(listed));

    let resumed = &program.json("resume --all")[0];
    assert_eq!(resumed["resumed"], true);
    assert_eq!(resumed["was"]["class"], Value::Null);
    assert_eq!(resumed["still"][0]["method"], "close");
    program.json("resume Order@close");
    let nothing = &program.json("resume Order")[0];
    let expected = serde_json::json!({ "resumed": false, "was": null, "still": [] });
    assert_eq!(*nothing, expected);
}

#[tokio::test]
async fn a_pause_with_an_end_says_until_when() {
    let (rig, program) = program().await;
    let client = rig.client().await;
    create(&client, "Order@close@1", 60_000).await;
    let set = program.says("pause Order --for 2h --reason stocktaking");
    let until = client.pauses().await.unwrap()[0].until.unwrap().to_string();
    let says = "running tasks finish, and no task of it starts after the next 2 s";
    assert_eq!(set, format!("`Order` is paused until {until}: {says}"));
    assert_eq!(program.json("pauses")[0]["until"], until[..]);
    let table = program.says("pauses");
    assert!(table.contains(&format!("paused until {until}")), "{table}");
    let shown = program.says("show Order@close@1");
    let kept = format!(" until {until} by ada@");
    assert!(shown.contains(&kept), "{shown}");
    let moved = program.says("reschedule Order@close@1 --in 0s");
    assert!(moved.contains(&kept), "{moved}");
    assert!(
        program
            .says("why Order@close@1")
            .contains(&format!("Until {until}."))
    );
    let after = program.says("reschedule Order@close@1 --in 3h");
    assert!(!after.contains("stays pending"), "{after}");

    let again = program.says("pause Order --until 2035-12-01T09:00:00Z");
    let says = "`Order` was paused already, now until 2035-12-01T09:00:00.000Z: since 20";
    assert!(again.starts_with(says), "{again}");
    assert!(again.ends_with(": stocktaking"), "{again}");
    let again = program.says("pause Order");
    let says = "`Order` was paused already, and stays so until it is resumed: since 20";
    assert!(again.starts_with(says), "{again}");
    assert_eq!(program.json("pauses")[0]["until"], Value::Null);
    for (arguments, says) in [
        ("pause Order --for 0s", "expected a time after 20"),
        (
            "pause Order --until 2001-01-01T00:00:00Z",
            "expected a time after 20",
        ),
        ("pause Order --for 2", "is not a delay"),
        ("pause Order --for=-2h", "is negative"),
        (
            "pause Order --until tomorrow",
            "is not a time, expected RFC 3339",
        ),
        (
            "pause Order --for 2h --until 2035-12-01T09:00:00Z",
            "cannot be used with",
        ),
    ] {
        let (code, error) = program.refuses(arguments);
        assert_eq!(code, 2, "{arguments}: {error}");
        assert!(error.contains(says), "{arguments}: {error}");
    }
}

#[tokio::test]
async fn an_invalid_pause_scope_is_rejected_with_the_expected_form() {
    let (_rig, program) = program().await;
    let long = format!("pause Order --reason {}", "x".repeat(256));
    for (arguments, says) in [
        (
            "pause 9Order",
            "class `9Order` does not fit, expected a letter or `_`",
        ),
        ("pause Order@", "method `` does not fit"),
        (
            "pause Order@close@42",
            "has arguments, expected `Class` or `Class@method`",
        ),
        ("pause Order*", "class `Order*` does not fit"),
        ("pause", "<CLASS[@METHOD]|--all>"),
        ("pause Order --all", "cannot be used with"),
        (&long, "has 256 characters, expected at most 255"),
        ("resume", "required"),
        ("resume --all --held", "cannot be used with"),
        ("resume Order --all", "cannot be used with"),
        ("resume --held Order@close@1", "has arguments"),
    ] {
        let (code, error) = program.refuses(arguments);
        assert_eq!(code, 2, "{arguments}: {error}");
        assert!(error.contains(says), "{arguments}: {error}");
    }
    assert_eq!(program.says("pauses"), "nothing is paused");
}

#[tokio::test]
async fn commands_about_tasks_report_what_blocks_them() {
    let (rig, program) = program().await;
    let client = rig.client().await;
    create(&client, "Order@close@1", -5_000).await;
    create(&client, "Orders@close@2", -5_000).await;
    program.says("pause Order --reason why");
    let listed = program.says("list");
    assert!(listed.contains("pending, paused"), "{listed}");
    assert_eq!(listed.matches("paused").count(), 1, "{listed}");
    let of = |name: &str| program.json(&format!("show {name}"))[0]["kept_back"].clone();
    assert_eq!(
        (of("Order@close@1"), of("Orders@close@2")),
        ("paused".into(), Value::Null)
    );
    let shown = program.says("show Order@close@1");
    assert!(
        shown.contains("kept back     `Order` is paused, since 20"),
        "{shown}"
    );
    // Until all daemons have seen the pause, a claim may still start the task.
    let since = |moment: &str| {
        format!("UPDATE tb_time_limit_task_pauses SET since = UNIX_TIMESTAMP(){moment}")
    };
    rig.run_sql(&since(" + 30")).await;
    let run = program.says("run Order@close@1");
    assert!(
        run.contains("but starts only if a daemon claims it before it sees the pause, within 2 s: `Order` is paused, since 20"),
        "{run}"
    );
    let ahead = program.says("reschedule Order@close@1 --in 1h");
    assert!(ahead.contains("but stays pending: `Order`"), "{ahead}");
    rig.run_sql(&since(" - 30")).await;
    let run = program.says("run Order@close@1");
    assert!(
        run.contains("but stays pending: `Order` is paused, since 20") && run.ends_with(": why"),
        "{run}"
    );
    assert_eq!(program.json("run Order@close@1")[0]["kept_back"], "paused");
    let counted = program.says("stats");
    assert!(counted.contains("paused: Order, since 20"), "{counted}");
    program.says("resume Order");

    client.hold_overdue("test", "restored").await.unwrap();
    assert_eq!(
        (of("Order@close@1"), of("Orders@close@2")),
        ("held".into(), "held".into())
    );
    let listed = program.json("list --state overdue");
    assert_eq!(listed.len(), 2);
    assert!(listed.iter().all(|task| task["kept_back"] == "held"));
    let run = program.json("run Order@close@1");
    assert_eq!(run[0]["kept_back"], Value::Null, "it is held no longer");
    assert_eq!(of("Order@close@1"), Value::Null);
    let table = program.says("pauses");
    assert!(table.contains("held if due before 20"), "{table}");
    let released = program.says("resume --held Orders");
    assert!(
        released.starts_with("held tasks of `Orders` are released; held since 20"),
        "{released}"
    );
    assert_eq!(of("Orders@close@2"), Value::Null);
    assert_eq!(
        program.says("resume --held Orders"),
        "held tasks of `Orders` were already released"
    );
    assert!(
        program
            .says("resume --held")
            .starts_with("held tasks are released")
    );
    assert_eq!(program.says("pauses"), "nothing is paused");
}

#[tokio::test]
async fn texts_about_pauses_are_in_the_zone_of_the_machine_with_local() {
    let rig = Rig::new("[[routes]]\nmatch = '.'\nlog = {}").await;
    let shell = Shell::of(&rig);
    let until = "2030-01-01T00:00:00Z";
    let says = |words: &[&str]| {
        let mut command = shell.command(&[&["--local"], words].concat());
        let (_, stdout, stderr) = said(command.env("TZ", "Asia/Shanghai").output().unwrap());
        let text = stdout + &stderr;
        let in_utc = regex::Regex::new(r"\d\dT[\d:.]+Z").unwrap();
        assert!(!in_utc.is_match(&text), "{words:?}: {text}");
        text
    };
    for words in [
        &["pause", "Mail", "--until", until][..],
        &["pause", "Mail", "--until", until],
        &["schedule", "Mail@send@1", "--in", "0s"],
        &["why", "Mail@send@1"],
        &["pauses"],
        &["stats"],
        &["run", "Mail@send@1"],
        &["resume", "Mail"],
    ] {
        let text = says(words);
        let shown = "2030-01-01T08:00:00.000+08:00";
        assert!(text.contains(shown), "{words:?}: {text}");
    }
    assert!(says(&["schedule", "Mail@send@2", "--in", "1h"]).contains("+08:00"));
    assert!(says(&["why", "Mail@send@2"]).contains("+08:00"));
    // JSON stays in UTC.
    says(&["pause", "Mail", "--until", until]);
    let (_, json, _) = shell.run(&["--local", "--json", "pauses"]);
    assert!(json.contains("2030-01-01T00:00:00.000Z"), "{json}");
}
