//! `lapsed` on the servers of a rig.

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tempfile::NamedTempFile;

use crate::support::process::config_file;
use crate::support::program::{lapsed, said};
use crate::support::rig::Rig;

/// A shell in which `lapsed` finds the configuration of a rig.
pub struct Shell {
    config: NamedTempFile,
}

impl Shell {
    pub fn of(rig: &Rig) -> Self {
        Self {
            config: config_file(rig),
        }
    }

    /// The path of the configuration.
    pub fn config(&self) -> &Path {
        self.config.path()
    }

    /// A command that is not started yet.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = lapsed();
        command.arg("--config").arg(self.config()).args(args);
        command
    }

    /// Exit code, standard output and standard error of a command.
    pub fn run(&self, args: &[&str]) -> (i32, String, String) {
        said(self.command(args).output().unwrap())
    }

    /// The text of a command that succeeds.
    pub fn text(&self, args: &[&str]) -> String {
        let (code, stdout, stderr) = self.run(args);
        assert_eq!(code, 0, "{args:?}: {stderr}");
        stdout
    }

    /// The JSON document of a command that succeeds.
    pub fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.text(&[&["--json"], args].concat())).unwrap()
    }

    /// The JSON documents of a command that succeeds, one a line.
    pub fn json_lines(&self, args: &[&str]) -> Vec<Value> {
        let text = self.text(&[&["--json"], args].concat());
        let lines = text.lines().map(serde_json::from_str);
        lines.collect::<Result<_, _>>().unwrap()
    }
}
