//! Daemons of a former build beside those of this one, as while a fleet is upgraded. `scripts/with-former` builds them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use lapsed::MysqlTaskClient;
use rustix::process::Signal;
use tempfile::TempDir;

use crate::support::not_tried::not_tried;
use crate::support::process::{Process, config_file};
use crate::support::program::{lapsed, said, without_settings};
use crate::support::rig::Rig;
use crate::support::setup::Setup;
use crate::support::tasks::create;
use crate::support::wait::until;

/// Names the program of the former build.
const FORMER: &str = "LAPSED_TEST_FORMER";

/// Tasks of each kind that are created in each step.
const TASKS: usize = 40;

/// A fleet whose routes append to a file what ran and when.
struct Fleet {
    rig: Rig,
    former: PathBuf,
    directory: TempDir,
    /// A producer of this build, once there is a table for it.
    client: Option<MysqlTaskClient>,
    /// How many tasks were created.
    created: usize,
}

impl Fleet {
    async fn new(former: PathBuf) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let settings = format!(
            "[[routes]]\nmatch = '^Job@'\n\
             exec = ['/bin/sh', '-c', 'sleep 0.1; echo \"$1 $2 $(date +%s%3N)\" >> {}', 'sh', '{{key}}', '{{id}}']",
            directory.path().join("runs").display()
        );
        let rig = Setup::new(&settings).without_table().start().await;
        run(&rig, without_settings(&former), &["migrate"]);
        Self {
            rig,
            former,
            directory,
            client: None,
            created: 0,
        }
    }

    /// A command of the former build.
    fn former(&self) -> Command {
        without_settings(&self.former)
    }

    async fn start(&self, mut program: Command) -> Process {
        let config = config_file(&self.rig);
        program.arg("listen").arg("--config").arg(config.path());
        let process = Process::start(program, config);
        process.until_logged("subscribed").await;
        process
    }

    /// Creates tasks by keys, by this build and by the former one. Some are due at once and some later.
    async fn create(&mut self, step: &str) {
        for number in 0..TASKS {
            let delay_ms = 50 * i64::try_from(number).unwrap();
            let key = format!("Job@key@{step}{number}");
            self.rig.arm(&key, delay_ms.max(1)).await;
            self.created += 1;
            if let Some(client) = &self.client {
                create(client, &format!("Job@row@{step}{number}"), delay_ms).await;
                self.created += 1;
            }
        }
        for number in 0..TASKS / 10 {
            let name = format!("Job@former@{step}{number}");
            run(&self.rig, self.former(), &["schedule", &name, "--in", "1s"]);
            self.created += 1;
        }
    }

    /// What has run: the key, the due time and the time of the run.
    fn runs(&self) -> Vec<(String, i64, i64)> {
        let text = std::fs::read_to_string(self.directory.path().join("runs")).unwrap_or_default();
        let run = |line: &str| {
            let [key, id, at] = line.split(' ').collect::<Vec<_>>()[..] else {
                panic!("not a run: {line}");
            };
            let (_, due) = id.split_once('-').unwrap();
            (key.to_owned(), due.parse().unwrap(), at.parse().unwrap())
        };
        text.lines().map(run).collect()
    }

    async fn until_all_ran(&self) {
        let done = self.created as i64;
        until(format!("{done} tasks are done"), async || {
            self.rig.with_status(1).await == done
        })
        .await;
    }
}

/// Runs a command of a build to its end.
fn run(rig: &Rig, mut program: Command, arguments: &[&str]) {
    let config = config_file(rig);
    program.arg("--config").arg(config.path()).args(arguments);
    let (code, stdout, stderr) = said(program.output().unwrap());
    assert_eq!(code, 0, "{arguments:?}: {stdout}{stderr}");
}

async fn stop(mut process: Process) {
    process.signal(Signal::TERM);
    let status = process.until_ended().await;
    assert!(status.success(), "{status}: {}", process.log());
}

#[tokio::test]
async fn a_fleet_is_upgraded_and_taken_back_under_load() {
    let Some(former) = std::env::var_os(FORMER) else {
        return not_tried(
            "a_fleet_is_upgraded_and_taken_back_under_load",
            "daemons of a former build: run it with scripts/with-former",
        );
    };
    let mut fleet = Fleet::new(Path::new(&former).to_owned()).await;
    let first = fleet.start(fleet.former()).await;
    let second = fleet.start(fleet.former()).await;
    fleet.create("before").await;
    run(&fleet.rig, lapsed(), &["migrate"]);
    fleet.client = Some(fleet.rig.client().await);
    fleet.create("migrated").await;
    let third = fleet.start(lapsed()).await;
    fleet.create("beside").await;
    stop(first).await;
    fleet.create("half").await;
    let fourth = fleet.start(lapsed()).await;
    stop(second).await;
    fleet.create("upgraded").await;
    let fifth = fleet.start(fleet.former()).await;
    stop(third).await;
    fleet.create("back").await;
    stop(fourth).await;
    fleet.create("former").await;
    fleet.until_all_ran().await;
    stop(fifth).await;
    let runs = fleet.runs();
    let keys: BTreeSet<_> = runs.iter().map(|(key, ..)| key).collect();
    assert_eq!((keys.len(), runs.len()), (fleet.created, fleet.created));
    let early: Vec<_> = runs.iter().filter(|(_, due, at)| at < due).collect();
    assert!(early.is_empty(), "{early:?}");
    let again = "SELECT COUNT(*) FROM tb_time_limit_task WHERE attempt <> 1 OR crashes > 0";
    assert_eq!(fleet.rig.number(again).await, 0);
}
