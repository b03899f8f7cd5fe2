//! Runs the programs that write jobs.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::registry;
use crate::support::rig::Rig;

const PROGRAMS: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/servers/importing/programs"
);

/// Runs a program and returns the JSON that it prints.
pub fn printed(command: Command, input: &str) -> Value {
    let text = run(command, input);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("no JSON: {error}: {text}"))
}

/// Runs a program and returns what it prints. A machine without it fails here, with the command that installs it.
pub fn run(mut command: Command, input: &str) -> String {
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
    String::from_utf8(output.stdout).unwrap()
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
    let installed = registry::npm(&Path::new(PROGRAMS).join("bullmq"));
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
