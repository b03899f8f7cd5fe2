//! What the command line and the configuration refuse before they ask any server, and what they say about it.

use crate::support::program::{lapsed, said};

/// What is said on standard error by a command whose servers cannot be reached.
fn refused(args: &[&str], settings: &str) -> String {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("lapsed.toml");
    let nowhere =
        "redis.url = 'redis://127.0.0.1:1'\nledger.url = 'mysql://root@127.0.0.1:1/lapsed'\n";
    std::fs::write(&file, format!("{nowhere}{settings}")).unwrap();
    let mut command = lapsed();
    command.arg("--config").arg(&file).args(args);
    let (code, _, text) = said(command.output().unwrap());
    assert_eq!(code, 2, "{args:?}: {text}");
    text
}

#[test]
fn prune_rejects_a_negative_or_too_long_age() {
    for (age, why) in [
        ("7d ago", "`7d ago` is negative"),
        ("-7d", "`-7d` is negative"),
        (
            "99999d",
            "duration is too long, expected at most 10 years (3650 days)",
        ),
        ("7", "`7` is not a delay"),
    ] {
        let older = format!("--older-than={age}");
        for command in ["prune", "discard", "redrive", "list"] {
            let text = refused(&[command, &older], "");
            assert!(text.contains(why), "{command} {older}: {text}");
        }
    }
}

#[test]
fn a_negative_delay_is_refused() {
    for command in ["schedule", "reschedule"] {
        let text = refused(&[command, "C@m", "--in", "-5s"], "");
        assert!(text.contains("`-5s` is negative"), "{command}: {text}");
    }
}

#[test]
fn schedule_rejects_a_due_time_that_means_never() {
    let text = refused(&["schedule", "C@m", "--at", "9999-12-31T23:59:59Z"], "");
    assert!(text.contains("due time is too far ahead"), "{text}");
}

#[test]
fn schedule_rejects_a_catch_up_count_that_is_too_large() {
    let args = [
        "schedule",
        "C@m",
        "--every",
        "1s",
        "--catch-up",
        "all",
        "--catch-up-max",
    ];
    let text = refused(&[&args[..], &["4294967295"]].concat(), "");
    assert!(text.contains("4294967295 is not in 1..=10000"), "{text}");
    let entry = "[[recurring]]\nkey = 'C@m'\nevery = '1s'\ncatch_up = 'all'\ncatch_up_max = 10001";
    let text = refused(&["check-config"], entry);
    assert!(
        text.contains("`catch_up_max` does not fit, expected 1 to 10000"),
        "{text}"
    );
}

#[test]
fn the_configuration_rejects_durations_that_the_ledger_cannot_add() {
    let settings = "engine = { lease = '3651d', timeout = '3650d' }\n\
                    retention.done = '99999d'\nretry.ladder = ['1s', '99999d']";
    let text = refused(&["check-config"], settings);
    for key in ["engine.lease", "retention.done", "retry.ladder"] {
        let line = format!("`{key}`: expected at most 10 years (3650 days)");
        assert!(text.contains(&line), "{text}");
    }
    assert!(!text.contains("engine.timeout"), "{text}");
}

#[test]
fn a_resp_server_on_a_public_address_needs_passwords_and_tls() {
    for address in ["0.0.0.0:6380", "[::]:6380", "192.0.2.7:6380"] {
        let text = refused(&["listen"], &format!("resp.listen = '{address}'"));
        for problem in [
            "`resp.password`: expected one, or `[[resp.users]]`",
            "`resp.tls_cert`: expected a certificate",
        ] {
            let line = format!("{problem}, because `{address}` is not a loopback address");
            assert!(text.contains(&line), "{text}");
        }
    }
}
