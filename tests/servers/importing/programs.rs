//! Runs the programs that write jobs.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use serde_json::Value;

use crate::support::rig::Rig;

const PROGRAMS: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/servers/importing/programs"
);

/// Runs a program and returns the JSON that it prints. A machine without it fails here, with the command that installs it.
pub fn printed(mut command: Command, input: &str) -> Value {
    command.stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let name = command.get_program().to_owned();
    let mut child = command
        .spawn()
        .unwrap_or_else(|error| panic!("{name:?}: {error}; run `scripts/install-servers --tests`"));
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name:?}: {errors}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        let said = String::from_utf8_lossy(&output.stdout);
        panic!("{name:?} printed no JSON: {error}: {said}{errors}")
    })
}

/// What a producer of `producers.php` writes.
pub fn php(rig: &Rig, system: &str, count: usize) -> Vec<Value> {
    let url = rig.config().ledger.url.expose().to_owned();
    let (address, database) = url.rsplit_once('@').unwrap().1.split_once('/').unwrap();
    let (host, port) = address.split_once(':').unwrap();
    let mut command = Command::new("php");
    command.arg(format!("{PROGRAMS}/producers.php")).arg(system);
    command.arg(rig.redis.port().to_string());
    command.arg(format!(
        "mysql:host={host};port={port};dbname={database};charset=utf8mb4"
    ));
    command.arg(count.to_string());
    written(printed(command, ""))
}

/// What Sidekiq has in its sets after `sidekiq.rb`.
pub fn sidekiq(rig: &Rig) -> Vec<Value> {
    let mut command = Command::new("ruby");
    command.arg(format!("{PROGRAMS}/sidekiq.rb"));
    command.arg(rig.redis.port().to_string());
    written(printed(command, ""))
}

/// Adds jobs with BullMQ. Returns the queue, id and due time of each.
pub fn bullmq(rig: &Rig, jobs: &Value) -> Vec<Value> {
    let installed = installed_bullmq();
    let input = serde_json::json!({ "port": rig.redis.port(), "prefix": "bull", "jobs": jobs });
    let mut command = Command::new("node");
    command
        .arg(installed.join("add.mjs"))
        .current_dir(&installed);
    written(printed(command, &input.to_string()))
}

fn written(value: Value) -> Vec<Value> {
    let Value::Array(written) = value else {
        panic!("expected an array: {value}");
    };
    written
}

/// BullMQ from the npm registry, in the version of `package.json`. Installed once, below `target`.
fn installed_bullmq() -> PathBuf {
    static INSTALLED: OnceLock<PathBuf> = OnceLock::new();
    let install = || {
        let source = Path::new(PROGRAMS).join("bullmq");
        let file = |name: &str| std::fs::read(source.join(name)).unwrap();
        let mut marks: Vec<u8> = file("package.json");
        marks.extend(file("add.mjs"));
        let mark = marks.iter().fold(0u64, |hash, byte| {
            hash.wrapping_mul(31).wrapping_add((*byte).into())
        });
        let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let home = target.join(format!("bullmq-{mark:016x}"));
        if home.join("node_modules").exists() {
            return home;
        }
        // Complete, or not there: another run of the tests may be installing it as well.
        let fresh = tempfile::tempdir_in(target).unwrap().keep();
        for name in ["package.json", "add.mjs"] {
            std::fs::write(fresh.join(name), file(name)).unwrap();
        }
        let mut npm = Command::new("npm");
        npm.args([
            "install",
            "--no-package-lock",
            "--omit=optional",
            "--ignore-scripts",
            "--no-audit",
            "--no-fund",
        ]);
        let output = npm.current_dir(&fresh).stdin(Stdio::null()).output();
        let output = output.expect("`npm` was not found; run `scripts/install-servers --tests`");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "`npm install` of BullMQ failed: {errors}"
        );
        if std::fs::rename(&fresh, &home).is_err() {
            assert!(
                home.join("node_modules").exists(),
                "cannot rename {fresh:?}"
            );
            let _ = std::fs::remove_dir_all(&fresh);
        }
        home
    };
    INSTALLED.get_or_init(install).clone()
}
