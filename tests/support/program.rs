//! The program `lapsed`, as it is typed in a shell.

use std::path::Path;
use std::process::{Command, Output, Stdio};

/// The program without input, and without settings from this process's environment.
pub fn lapsed() -> Command {
    without_settings(Path::new(env!("CARGO_BIN_EXE_lapsed")))
}

/// A program as [`lapsed`] starts it.
pub fn without_settings(program: &Path) -> Command {
    let mut command = Command::new(program);
    let settings = std::env::vars_os().map(|(name, _)| name);
    for name in settings.filter(|name| name.as_encoded_bytes().starts_with(b"LAPSED")) {
        command.env_remove(name);
    }
    command.stdin(Stdio::null());
    command
}

/// Exit code, standard output and standard error of a program that has ended.
pub fn said(output: Output) -> (i32, String, String) {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let code = output.status.code().expect("it was not killed");
    (code, text(output.stdout), text(output.stderr))
}
