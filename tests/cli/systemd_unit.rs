//! The commands of `dist/lapsed.service`, with other paths.

use std::path::Path;
use std::process::Command;

use rustix::process::Signal;

use crate::support::not_tried::not_tried;
use crate::support::program::{lapsed, said};
use crate::support::wait::until;
use crate::unwritable_log::{Daemon, ended, signal};

fn unit() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist/lapsed.service");
    std::fs::read_to_string(path).unwrap()
}

/// The values of a setting of the unit.
fn values(name: &str) -> Vec<String> {
    let unit = unit();
    let lines = unit
        .lines()
        .filter_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    lines.map(str::to_owned).collect()
}

/// A command of the unit, on this configuration.
fn command(line: &str, config: &Path) -> Command {
    let line = line.trim_start_matches('-');
    let words = line
        .strip_prefix("/usr/local/bin/lapsed ")
        .expect("it runs the program");
    let mut command = lapsed();
    for word in words.split(' ') {
        match word {
            "/etc/lapsed/lapsed.toml" => command.arg(config),
            word => command.arg(word),
        };
    }
    // As a service has it.
    command.current_dir("/");
    command
}

#[tokio::test]
async fn the_unit_starts_a_ledger_in_sqlite_without_a_file_for_a_credential() {
    assert_eq!(values("LoadCredential"), [""; 0]);
    assert_eq!(values("Environment"), [""; 0]);
    let place = tempfile::tempdir().unwrap();
    let config = place.path().join("lapsed.toml");
    let file = place.path().join("lapsed.db");
    let valid = format!(
        "[ledger]\nurl = 'sqlite://{}'\n[http]\nlisten = ''\n",
        file.display()
    );
    std::fs::write(&config, &valid).unwrap();

    // At the first start and at later ones.
    for _ in 0..2 {
        for line in values("ExecStartPre") {
            let (code, _, text) = said(command(&line, &config).output().unwrap());
            assert_eq!(code, 0, "{text}");
        }
    }
    let starts = values("ExecStart");
    let [start] = &starts[..] else {
        panic!("expected one command that starts the daemon");
    };
    let log = std::fs::File::create(place.path().join("log")).unwrap();
    let mut daemon = Daemon(command(start, &config).stderr(log).spawn().unwrap());
    let log = || std::fs::read_to_string(place.path().join("log")).unwrap();
    until("the daemon runs", async || log().contains("audited")).await;

    // A reload checks the configuration before it tells the daemon of it.
    let reloads = values("ExecReload");
    let [check, tell] = &reloads[..] else {
        panic!("expected two commands that reload");
    };
    assert_eq!(tell, "/bin/kill -HUP $MAINPID");
    assert_eq!(said(command(check, &config).output().unwrap()).0, 0);
    std::fs::write(&config, "wrong = 1").unwrap();
    assert_eq!(said(command(check, &config).output().unwrap()).0, 2);
    assert_eq!(said(command(start, &config).output().unwrap()).0, 2);

    signal(daemon.0.id(), Signal::TERM);
    let ended = ended(&mut daemon.0).await;
    assert_eq!(ended.code(), Some(0), "{}", log());
}

/// The exit code of the daemon, and of no other command, says whether systemd tries again.
#[test]
fn a_faulty_configuration_is_not_tried_again() {
    assert_eq!(values("RestartPreventExitStatus"), ["2"]);
    for line in values("ExecStartPre") {
        assert!(line.starts_with('-'), "{line}");
    }
}

#[test]
fn the_unit_creates_no_table_in_mysql() {
    let place = tempfile::tempdir().unwrap();
    let config = place.path().join("lapsed.toml");
    std::fs::write(&config, "[ledger]\nurl = 'mysql://none@127.0.0.1:1/none'\n").unwrap();
    for line in values("ExecStartPre") {
        let (code, _, text) = said(command(&line, &config).output().unwrap());
        assert_eq!(code, 0, "{text}");
    }
}

#[test]
fn systemd_accepts_the_unit() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist/lapsed.service");
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("lapsed.service");
    // The program is not installed where the unit says.
    let unit = std::fs::read_to_string(path).unwrap();
    std::fs::write(
        &copy,
        unit.replace("/usr/local/bin/lapsed", env!("CARGO_BIN_EXE_lapsed")),
    )
    .unwrap();
    let mut command = Command::new("systemd-analyze");
    command.args(["verify", "--man=no"]).arg(&copy);
    let said = match command.output() {
        Ok(output) => output,
        Err(error) => {
            return not_tried(
                "systemd_accepts_the_unit",
                &format!("systemd-analyze: {error}"),
            );
        }
    };
    let errors = String::from_utf8_lossy(&said.stderr);
    let about_it: Vec<&str> = errors
        .lines()
        .filter(|line| line.contains("lapsed.service"))
        .collect();
    assert!(said.status.success() && about_it.is_empty(), "{errors}");
}
