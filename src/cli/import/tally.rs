//! What an import has done, and how it is told.

use std::collections::BTreeMap;
use std::process::ExitCode;

use lapsed::config::ImportSource;
use lapsed::task::{TaskKey, UnixMs};
use serde_json::{Value, json};

use crate::EXIT_FAILED;
use crate::log::stderr_line;
use crate::output::Output;
use crate::times;

/// Maximum number of `Class@method` that are counted one by one.
const METHODS_MAX: usize = 1_000;

/// Examples shown of each.
const EXAMPLES: usize = 3;

#[derive(Default)]
pub struct Tally {
    pub created: u64,
    /// Pending tasks of earlier imports whose job was moved at the source since.
    pub moved: u64,
    /// Tasks already.
    pub known: u64,
    /// Jobs that do not wait at the source: settled, or held by lapsed's own timer.
    pub settled: u64,
    pub refused: u64,
    /// Redis did not accept the key.
    pub unarmed: u64,
    /// Removed at the source.
    pub taken: u64,
    /// Not removed at the source, because they have changed there since they were read.
    pub changed: u64,
    /// What tasks do not keep of their jobs.
    missing: BTreeMap<&'static str, u64>,
    /// Cancelled, since the job was not at the source any more when it was to be removed.
    pub undone: u64,
    /// As `undone`, but the task has run, or runs.
    pub not_undone: u64,
    unrouted: u64,
    first_unrouted: Option<TaskKey>,
    methods: BTreeMap<String, Method>,
    /// Tasks of further methods.
    others: u64,
}

/// Tasks of one `Class@method`.
#[derive(Default)]
struct Method {
    count: u64,
    examples: Vec<(TaskKey, UnixMs)>,
}

impl Tally {
    /// Everything that was read.
    pub fn read(&self) -> u64 {
        self.created + self.moved + self.known + self.settled + self.refused
    }

    /// Counts a task by its class and method.
    pub fn note(&mut self, key: &TaskKey, due: UnixMs) {
        let name = key.class_method();
        if !self.methods.contains_key(name) {
            if self.methods.len() >= METHODS_MAX {
                self.others += 1;
                return;
            }
            self.methods.insert(name.to_owned(), Method::default());
        }
        let method = self.methods.get_mut(name).expect("just inserted");
        method.count += 1;
        if method.examples.len() < EXAMPLES {
            method.examples.push((key.clone(), due));
        }
    }

    /// Counts a job of which something is not kept.
    pub fn note_missing(&mut self, missing: Option<&'static str>) {
        if let Some(missing) = missing {
            *self.missing.entry(missing).or_default() += 1;
        }
    }

    /// Counts a task that no configured route matches.
    pub fn note_unrouted(&mut self, key: &TaskKey) {
        self.unrouted += 1;
        self.first_unrouted.get_or_insert_with(|| key.clone());
    }

    fn value(&self, source: ImportSource, dry_run: bool, complete: bool) -> Value {
        let method = |(name, method): (&String, &Method)| {
            let examples: Vec<Value> = method
                .examples
                .iter()
                .map(|(key, due)| json!({ "key": key.as_str(), "due": due.to_string() }))
                .collect();
            (
                name.clone(),
                json!({ "count": method.count, "examples": examples }),
            )
        };
        let methods: serde_json::Map<_, _> = self.methods.iter().map(method).collect();
        json!({
            "source": source.as_str(), "dry_run": dry_run, "complete": complete,
            "created": self.created, "moved": self.moved, "known": self.known, "settled": self.settled,
            "refused": self.refused, "taken": self.taken, "changed": self.changed, "unarmed": self.unarmed,
            "undone": self.undone, "not_undone": self.not_undone,
            "methods": methods, "other_methods": self.others,
        })
    }

    fn text(&self, source: ImportSource, dry_run: bool) -> String {
        let would_be = if dry_run { "would be " } else { "" };
        let mut text = format!(
            "{source}: {} {would_be}created, {} already there, {} refused",
            self.created, self.known, self.refused
        );
        let more = [
            (self.moved, "moved"),
            (self.settled, "not waiting there"),
            (self.taken, "taken from the source"),
            (self.changed, "left there because they have changed"),
            (
                self.undone,
                "cancelled because they were gone from the source",
            ),
            (
                self.not_undone,
                "started here although they were gone from the source",
            ),
        ];
        for (count, what) in more.into_iter().filter(|(count, _)| *count > 0) {
            text += &format!(", {count} {what}");
        }
        for (name, method) in &self.methods {
            text += &format!("\n  {name}  {}", method.count);
            for (key, due) in method.examples.iter().filter(|_| dry_run) {
                text += &format!("\n    {key}  due {}", times::shown(*due));
            }
        }
        if self.others > 0 {
            text += &format!("\n  of other methods  {}", self.others);
        }
        text
    }

    /// Prints the result. Exit code 1 if a job was refused, a task could not be cancelled whose job was gone,
    /// or the import was interrupted.
    pub fn print(
        self,
        source: ImportSource,
        dry_run: bool,
        complete: bool,
        output: Output,
    ) -> anyhow::Result<ExitCode> {
        output.print(
            &self.value(source, dry_run, complete),
            self.text(source, dry_run),
        )?;
        if self.unarmed > 0 {
            stderr_line!(
                "warning: Redis did not accept the keys of {} tasks; the daemon finds them in the ledger",
                self.unarmed
            );
        }
        for (missing, count) in &self.missing {
            stderr_line!("note: {count} jobs {missing}");
        }
        if let Some(key) = &self.first_unrouted {
            stderr_line!(
                "note: no route of this configuration matches {} of these tasks, the first is `{key}`: only a program with a handler for them runs them",
                self.unrouted
            );
        }
        if !complete {
            stderr_line!("interrupted: start the same import again, it continues");
        }
        Ok(
            match complete && self.refused == 0 && self.not_undone == 0 {
                true => ExitCode::SUCCESS,
                false => ExitCode::from(EXIT_FAILED),
            },
        )
    }
}
