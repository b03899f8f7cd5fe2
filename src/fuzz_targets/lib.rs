//! What holds for each input that strangers write. A target is a function of any bytes; it panics if a rule is broken.
//!
//! The fuzzer in `fuzz` calls the targets with inputs that it finds itself, the tests of this package with the inputs below
//! `fuzz/corpus` and mutations of them.
#![forbid(unsafe_code)]

mod claim_token;
mod config;
mod cron;
mod cursor;
mod duration;
mod glob;
mod http;
mod import;
mod refusal;
mod resp;
mod task_key;
mod task_line;
mod webhook;

/// A function of any bytes that panics if a rule is broken.
#[derive(Clone, Copy)]
pub struct Target {
    /// The name of its binary and of its corpus.
    pub name: &'static str,
    /// Reads an input, and checks what was read.
    pub run: fn(&[u8]),
}

/// Every target.
pub const TARGETS: &[Target] = &[
    target("claim_token", claim_token::run),
    target("config", config::run),
    target("cron", cron::run),
    target("cursor", cursor::run),
    target("duration", duration::run),
    target("glob", glob::run),
    target("http", http::run),
    target("import", import::run),
    target("resp", resp::run),
    target("task_key", task_key::run),
    target("task_line", task_line::run),
    target("webhook", webhook::run),
];

const fn target(name: &'static str, run: fn(&[u8])) -> Target {
    Target { name, run }
}

/// Runs the target of this name.
///
/// # Panics
/// There is no such target, or the input breaks a rule of it.
pub fn run(name: &str, input: &[u8]) {
    let target = TARGETS.iter().find(|target| target.name == name);
    let target = target.unwrap_or_else(|| panic!("`{name}` is not a target"));
    (target.run)(input);
}
