//! Compares what has run with the model.

use std::collections::BTreeMap;

use super::plan::Script;
use super::task::{Arming, Task};
use super::{Log, Trial};
use crate::support::rig::Run;

/// How far the clock of this process may be from the database's.
const CLOCKS_APART: i64 = 100;

/// How much later than it is a daemon may take the due time of a key to be: so long the answer took.
const READ_LATE: i64 = 2_000;

impl Trial {
    /// What differs, and what had been done.
    pub(super) async fn compare(&self, seed: u64, tasks: &[(&Script, Task, Log)]) -> Vec<String> {
        let mut runs: BTreeMap<String, Vec<Run>> = BTreeMap::new();
        for run in self.rig.read().await.runs().await {
            runs.entry(run.name.clone()).or_default().push(run);
        }
        let (mut unsure, mut left_out, mut planned) = (0, 0, 0);
        let mut found = Vec::new();
        for (script, task, log) in tasks {
            planned += script.steps.len();
            left_out += log.iter().filter(|line| line.contains("left out")).count();
            let runs = runs.remove(&script.name).unwrap_or_default();
            let is_early = runs.iter().any(|run| run.at_ms < run.due_ms);
            if !is_early && (task.unsure || !task.was_found_in_time(&self.disturbances.borrow())) {
                unsure += 1;
                continue;
            }
            let judged = match self.wrong_answers.borrow().get(&script.name) {
                Some(wrong) => Err(format!("was answered wrongly: {wrong}")),
                None => self.judge(task, &runs),
            };
            if let Err(wrong) = judged {
                let began = self.began.0;
                let runs: Vec<(i64, i64, &str)> = runs
                    .iter()
                    .map(|run| (run.due_ms - began, run.at_ms - began, run.task.as_str()))
                    .collect();
                let name = &script.name;
                let armings = &task.armings;
                found.push(format!(
                    "`{name}` {wrong}\n  began {began}, {log:#?}\n  {armings:?}\n  runs (due, at, id) {runs:?}\n  {:?}",
                    self.disturbances.borrow().all
                ));
            }
        }
        eprintln!("seed {seed}: {planned} operations, {left_out} left out, {unsure} keys unsure");
        if 2 * left_out > planned || 2 * unsure > tasks.len() {
            found.push("this machine is too slow to tell anything".to_owned());
        }
        found
    }

    fn judge(&self, task: &Task, runs: &[Run]) -> Result<(), String> {
        if let Some(run) = runs.iter().find(|run| run.at_ms < run.due_ms) {
            return Err(format!("started before its due time: {run:?}"));
        }
        let is_paused = |run: &&Run| {
            let paused = |(from, to): &(i64, i64)| (*from..*to).contains(&run.at_ms);
            run.name.contains("@pausable@") && self.pauses.borrow().iter().any(paused)
        };
        if let Some(run) = runs.iter().find(is_paused) {
            return Err(format!("started while it was paused: {run:?}"));
        }
        // What a daemon was running when it was killed runs again.
        let mut once: Vec<&Run> = Vec::new();
        for run in runs {
            match once.last() {
                Some(last) if last.task == run.task => {
                    let was_killed = |(from, to): &(i64, i64)| {
                        *from <= run.at_ms && *to + CLOCKS_APART >= last.at_ms
                    };
                    if !self.kills.borrow().iter().any(was_killed) {
                        return Err(format!("ran twice: {run:?}"));
                    }
                }
                _ => once.push(run),
            }
        }
        let wanted: Vec<&Arming> = task.runs().collect();
        if once.len() != wanted.len() {
            return Err(format!("ran {} times, not {}", once.len(), wanted.len()));
        }
        for (run, wanted) in once.iter().zip(wanted) {
            let due = wanted.earliest - CLOCKS_APART..=wanted.latest + READ_LATE;
            if run.at_ms < *due.start() || !due.contains(&run.due_ms) {
                return Err(format!("ran for another due time than {wanted:?}: {run:?}"));
            }
        }
        Ok(())
    }
}
