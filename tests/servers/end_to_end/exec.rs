//! Programs as targets.

use std::path::Path;

use lapsed::task::{How, Reason, State};
use lapsed::{Due, Handlers, Task};

use crate::support::daemon::Daemon;
use crate::support::rig::Rig;
use crate::support::wait::until;

/// A route that runs a shell script, and where it writes.
struct Script {
    rig: Rig,
    daemon: Daemon,
    out: tempfile::TempDir,
}

impl Script {
    /// The script's `$0` is the directory it may write to; its arguments are those of the task.
    async fn new(script: &str, route: &str) -> Self {
        let out = tempfile::tempdir().unwrap();
        let settings = format!(
            "[[routes]]\nmatch = '^Run@'\n\
             exec = ['/bin/sh', '-c', '''{script}''', '{}', '{{class}}', '{{method}}', '{{id}}', '{{key}}', '{{args}}']\n{route}",
            out.path().display()
        );
        let rig = Rig::new(&settings).await;
        let daemon = rig.daemon_with(Handlers::new());
        Self { rig, daemon, out }
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.out.path().join(name)).unwrap_or_default()
    }

    async fn until_written(&self, name: &str) -> String {
        until(format!("the script has written `{name}`"), async || {
            self.read(name).ends_with('\n')
        })
        .await;
        self.read(name)
    }
}

/// Whether a process is there and runs: one that nobody has collected yet does not count.
pub fn runs(pid: &str) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid.trim()).join("stat"));
    stat.is_ok_and(|stat| {
        !stat
            .rsplit_once(')')
            .unwrap()
            .1
            .trim_start()
            .starts_with('Z')
    })
}

#[tokio::test]
async fn a_program_gets_its_arguments_as_they_are_and_the_task_on_stdin() {
    let script = Script::new(
        r#"cat > "$0/stdin"; for arg in "$@"; do printf '<%s>\n' "$arg" >> "$0/argv"; done"#,
        "",
    )
    .await;
    let name = "Run@it@$(reboot)@a b@;'\"@*";
    let task = Task::from(crate::support::tasks::key(name));
    let made = script
        .daemon
        .tasks
        .create(task.payload("{\"amount\": 5}").tag("shop"), Due::NOW)
        .await
        .unwrap();
    script.rig.until_done(1).await;
    let id = made.id();
    let argv = format!("<Run>\n<it>\n<{id}>\n<{name}>\n<$(reboot)>\n<a b>\n<;'\"\u{3e}\n<*>\n");
    assert_eq!(script.read("argv"), argv);
    let mut task: serde_json::Value = serde_json::from_str(&script.read("stdin")).unwrap();
    let lateness = task["lateness_ms"].take();
    assert!(lateness.is_u64(), "{lateness}");
    assert_eq!(
        task,
        serde_json::json!({
            "id": id, "key": name, "class": "Run", "method": "it",
            "args": ["$(reboot)", "a b", ";'\"", "*"],
            "due": made.due().to_string(), "attempt": 1, "lateness_ms": null,
            "payload": {"amount": 5}, "tag": "shop", "max_attempts": 16, "last": false,
        })
    );
}

#[tokio::test]
async fn exit_codes_say_done_dead_or_try_again() {
    let script = Script::new(
        r#"echo "$5" >> "$0/ran"; [ "$5" = again ] && [ -e "$0/once" ] && exit 0
           [ "$5" = again ] && touch "$0/once"
           case "$5" in fine) exit 0;; never) echo broken >&2; exit 65;; *) exit 7;; esac"#,
        "retry = { max_attempts = 3, backoff = 'exponential', base = '100ms', max = '200ms' }",
    )
    .await;
    for arg in ["fine", "never", "again", "hopeless"] {
        script.daemon.create(&format!("Run@it@{arg}"), 0).await;
    }
    script.rig.until_done(2).await;
    script.rig.until_state("Run@it@never", State::Dead).await;
    script.rig.until_state("Run@it@hopeless", State::Dead).await;
    let count = |arg: &str| {
        script
            .read("ran")
            .lines()
            .filter(|line| *line == arg)
            .count()
    };
    let counts = ["fine", "never", "again", "hopeless"].map(count);
    assert_eq!(counts, [1, 1, 2, 3]);
    let never = script.rig.record("Run@it@never").await;
    let error = never.last_error.unwrap();
    assert!(
        error.contains("permanent") && error.contains("broken"),
        "{error}"
    );
    let error = script
        .rig
        .record("Run@it@hopeless")
        .await
        .last_error
        .unwrap();
    assert!(error.contains("exit status: 7"), "{error}");
}

#[tokio::test]
async fn a_program_that_takes_too_long_is_killed_with_everything_it_started() {
    let script = Script::new(
        r#"sleep 300 & child=$!; (trap '' TERM; sleep 300) & echo $$ $child $! > "$0/pids"; wait"#,
        "timeout = '700ms'\nretry = { max_attempts = 1, backoff = 'exponential', base = '1s', max = '1s' }",
    )
    .await;
    script.daemon.create("Run@it", 0).await;
    let pids = script.until_written("pids").await;
    assert!(pids.split_whitespace().all(runs), "{pids}");
    script.rig.until_state("Run@it", State::Dead).await;
    let error = script.rig.record("Run@it").await.last_error.unwrap();
    assert!(error.contains("timed out after 700 ms"), "{error}");
    until("the whole group is dead", async || {
        !pids.split_whitespace().any(runs)
    })
    .await;
}

#[tokio::test]
async fn a_flood_of_output_is_cut_and_does_not_stop_the_program() {
    let script = Script::new(
        r#"head -c 30000000 /dev/zero | tr '\0' x; head -c 30000000 /dev/zero | tr '\0' y >&2; echo end >&2; echo through > "$0/end"; exit 65"#,
        "",
    )
    .await;
    script.daemon.create("Run@it", 0).await;
    script.rig.until_state("Run@it", State::Dead).await;
    assert_eq!(script.read("end"), "through\n");
    let error = script.rig.record("Run@it").await.last_error.unwrap();
    assert!(error.len() < 1_000 && error.contains("yyy"), "{error}");
}

#[tokio::test]
async fn a_program_that_leaves_a_child_behind_with_its_pipes_is_over_all_the_same() {
    let script = Script::new(r#"sleep 20 & echo $! > "$0/pid"; exit 0"#, "").await;
    script.daemon.create("Run@it", 0).await;
    script.rig.until_done(1).await;
    let pid = script.read("pid");
    assert!(runs(&pid), "it may go on");
    let pid = rustix::process::Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

#[tokio::test]
async fn an_argument_that_looks_like_an_option_is_refused_for_good() {
    let script = Script::new(r#"echo ran > "$0/ran""#, "").await;
    script.daemon.create("Run@it@fine@--delete", 0).await;
    script
        .rig
        .until_state("Run@it@fine@--delete", State::Dead)
        .await;
    assert_eq!(script.read("ran"), "");
    let record = script.rig.record("Run@it@fine@--delete").await;
    let error = record.last_error.unwrap();
    assert!(error.contains("`--delete` begins with `-`"), "{error}");
    assert_eq!(record.attempt, 1);
}

#[tokio::test]
async fn an_argument_that_looks_like_an_option_passes_where_the_route_says_so() {
    let script = Script::new(r#"printf '%s\n' "$5" > "$0/ran""#, "allow_dash = true").await;
    script.daemon.create("Run@it@--delete", 0).await;
    script.rig.until_done(1).await;
    assert_eq!(script.read("ran"), "--delete\n");
}

#[tokio::test]
async fn a_program_starts_in_the_directory_of_its_route() {
    let script = Script::new(r#"pwd > "$0/pwd""#, "cwd = '/usr/share'").await;
    script.daemon.create("Run@it", 0).await;
    script.rig.until_done(1).await;
    assert_eq!(script.read("pwd"), "/usr/share\n");

    let route = "cwd = '/no/such/directory'\nretry = { max_attempts = 1 }";
    let script = Script::new("true", route).await;
    script.daemon.create("Run@it", 0).await;
    script.rig.until_state("Run@it", State::Dead).await;
    let error = script.rig.record("Run@it").await.last_error.unwrap();
    assert!(
        error.contains("in `/no/such/directory`: No such file"),
        "{error}"
    );
}

#[tokio::test]
async fn a_program_gets_only_the_variables_that_are_listed() {
    // This process has PATH, and cargo's variables, which must not go through.
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
    for (route, listed) in [("", "PATH"), ("env = ['CARGO_PKG_NAME']", "CARGO_PKG_NAME")] {
        let script = Script::new(r#"/usr/bin/env > "$0/env""#, route).await;
        script.daemon.create("Run@it", 0).await;
        script.rig.until_done(1).await;
        let env = script.read("env");
        let names: Vec<&str> = env
            .lines()
            .filter_map(|line| Some(line.split_once('=')?.0))
            .collect();
        assert!(names.contains(&listed), "{env}");
        // What the shell itself adds.
        let allowed = [
            "PATH",
            "HOME",
            "LANG",
            "TZ",
            "PWD",
            "OLDPWD",
            "SHLVL",
            "_",
            "CARGO_PKG_NAME",
        ];
        assert!(names.iter().all(|name| allowed.contains(name)), "{env}");
        assert_eq!(
            names.contains(&"CARGO_PKG_NAME"),
            listed == "CARGO_PKG_NAME"
        );
    }
}

#[tokio::test]
async fn a_program_that_is_not_there_is_tried_again() {
    let settings = "[[routes]]\nmatch = '^Run@'\nexec = ['/no/such/program']\n\
                    retry = { max_attempts = 2, backoff = 'exponential', base = '100ms', max = '100ms' }";
    let rig = Rig::new(settings).await;
    let daemon = rig.daemon_with(Handlers::new());
    daemon.create("Run@it", 0).await;
    rig.until_state("Run@it", State::Dead).await;
    let record = rig.record("Run@it").await;
    assert_eq!(record.attempt, 2);
    let error = record.last_error.unwrap();
    assert!(error.contains("start `/no/such/program`"), "{error}");
}

#[tokio::test]
async fn the_last_line_of_a_program_that_failed_may_say_more() {
    let script = Script::new(
        r#"echo "$5" >> "$0/ran"; echo "lapsed: permanent"
           case "$5" in
             snoozes) [ -e "$0/once" ] && exit 0; touch "$0/once"; echo "lapsed: snooze 300ms"; exit 75;;
             waits) echo "lapsed: retry-after 1h"; exit 75;;
             never) exit 1;;
             data) echo "lapsed: retry-after 1h"; exit 65;;
             mumbles) echo "lapsed: later"; exit 75;;
           esac"#,
        "retry = { max_attempts = 1 }",
    )
    .await;
    let all = ["snoozes", "waits", "never", "data", "mumbles"];
    for arg in all {
        let task = Task::from(crate::support::tasks::key(&format!("Run@it@{arg}")));
        let runs = if arg == "waits" { 2 } else { 1 };
        let task = task.max_attempts(runs);
        script.daemon.tasks.create(task, Due::NOW).await.unwrap();
    }
    let rig = &script.rig;
    // Exit 0 is success, whatever was said.
    rig.until_state("Run@it@snoozes", State::Done).await;
    let snoozed = rig.record("Run@it@snoozes").await;
    assert_eq!((snoozed.attempt, snoozed.history.len()), (1, 1));
    assert_eq!(snoozed.history[0].how, How::Snoozed);
    rig.until_state("Run@it@waits", State::Waiting).await;
    let waits = rig.record("Run@it@waits").await;
    let delay_ms = waits.due_at.since(waits.history[0].at).as_millis();
    assert_eq!(delay_ms, 3_600_000);
    for (arg, reason) in [
        ("never", Reason::Permanent),
        ("data", Reason::Permanent),
        ("mumbles", Reason::Exhausted),
    ] {
        let name = format!("Run@it@{arg}");
        rig.until_state(&name, State::Dead).await;
        assert_eq!(rig.record(&name).await.reason, Some(reason), "{arg}");
    }
    let error = rig.record("Run@it@mumbles").await.last_error.unwrap();
    assert!(
        error.contains("`lapsed: later` is not understood, expected"),
        "{error}"
    );
    let snoozes = script
        .read("ran")
        .lines()
        .filter(|l| *l == "snoozes")
        .count();
    assert_eq!(snoozes, 2);
}

#[tokio::test]
async fn the_output_of_a_program_is_stored_if_its_route_requires_it() {
    let script = Script::new(
        r#"case "$5" in
             json) echo ' {"sum": [1, 2]} ';;
             text) echo "two words";;
             long) head -c 200000 /dev/zero | tr '\0' '"';;
             fails) echo '{"sum": 0}'; exit 65;;
           esac"#,
        "keep_result = true",
    )
    .await;
    for arg in ["json", "text", "long", "silent", "fails"] {
        script.daemon.create(&format!("Run@it@{arg}"), 0).await;
    }
    script.rig.until_done(4).await;
    script.rig.until_state("Run@it@fails", State::Dead).await;
    let kept = async |arg: &str| {
        let record = script.rig.record(&format!("Run@it@{arg}")).await;
        serde_json::to_value(record).unwrap()["result"].take()
    };
    assert_eq!(kept("json").await, serde_json::json!({"sum": [1, 2]}));
    assert_eq!(kept("text").await, "two words");
    assert_eq!(kept("silent").await, "");
    assert!(kept("fails").await.is_null());
    let long = kept("long").await.as_str().unwrap().len();
    assert!((10_000..=65_536).contains(&long), "{long}");
}
