//! Scripts name commands and options. The prose of `--help` may change, so only what is typed is compared.

use crate::support::program::lapsed;
use crate::support::snapshot::assert_snapshot;

#[test]
fn commands_keep_their_options_values_and_defaults() {
    let mut lines = Vec::new();
    describe(&mut Vec::new(), &[], &mut lines);
    assert_snapshot("command_line", lines);
}

/// The usage and the options of a command, then those of its own commands. What every command has is listed once.
fn describe(command: &mut Vec<String>, global: &[String], lines: &mut Vec<String>) {
    let help = help(command);
    let name = format!("lapsed {}", command.join(" "));
    let name = name.trim_end();
    let entries = entries(&help);
    let (commands, options): (Vec<_>, Vec<_>) = entries
        .iter()
        .partition(|entry| entry.section == "Commands");
    let options = options.iter().map(|entry| match entry.section {
        "Usage" => format!("usage: {}", entry.text),
        _ => without_prose(&entry.text),
    });
    let options: Vec<String> = options.filter(|option| !global.contains(option)).collect();
    lines.extend(options.iter().map(|option| format!("{name}: {option}")));
    let global = if command.is_empty() {
        &options[..]
    } else {
        global
    };
    for entry in commands {
        let subcommand = entry.text.split_whitespace().next().unwrap();
        if subcommand != "help" {
            command.push(subcommand.to_owned());
            describe(command, global, lines);
            command.pop();
        }
    }
}

fn help(command: &[String]) -> String {
    // `-h` has each option on its own line, where `--help` has paragraphs.
    let help = lapsed()
        .args(command)
        .arg("-h")
        .env_clear()
        .output()
        .unwrap();
    assert!(help.status.success(), "{command:?}: {help:?}");
    String::from_utf8(help.stdout).unwrap()
}

/// An option, an argument, a command, or the usage.
struct Entry<'a> {
    section: &'a str,
    /// On one line, however the help is wrapped.
    text: String,
}

fn entries(help: &str) -> Vec<Entry<'_>> {
    let mut entries: Vec<Entry> = Vec::new();
    let mut section = "";
    for line in help.lines() {
        let text = line.trim_start();
        let indent = line.len() - text.len();
        if let Some(usage) = line.strip_prefix("Usage: ") {
            section = "Usage";
            let text = usage.to_owned();
            entries.push(Entry { section, text });
        } else if indent == 0 {
            section = line.strip_suffix(':').unwrap_or("");
        } else if section.is_empty() {
        } else if section == "Usage" || indent > 6 || !is_start(section, text) {
            let last = entries.last_mut().unwrap();
            last.text = format!("{} {text}", last.text);
        } else {
            let text = text.to_owned();
            entries.push(Entry { section, text });
        }
    }
    entries
}

/// An option is indented by two or, without a short form, by six; a wrapped text by more.
fn is_start(section: &str, text: &str) -> bool {
    section == "Commands" || text.starts_with(['-', '<', '['])
}

/// `--rate <N>  [default: 200]` of `--rate <N>  Tasks that fall due in a second [default: 200]`.
fn without_prose(option: &str) -> String {
    let (mut kept, prose) = match option.split_once("  ") {
        Some((names, prose)) => (names.to_owned(), prose),
        None => (option.to_owned(), ""),
    };
    for part in ["[default: ", "[possible values: ", "[env: "] {
        if let Some((_, rest)) = prose.split_once(part) {
            let (value, _) = rest.split_once(']').unwrap();
            kept = format!("{kept} {part}{value}]");
        }
    }
    kept
}
