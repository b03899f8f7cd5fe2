//! A module imports downward only. Reads the `use` lines, and names the offending one.

use std::path::{Path, PathBuf};

/// Each module, and the modules of the crate it may name.
const MAY_USE: [(&str, &[&str]); 16] = [
    ("task", &[]),
    ("clock.rs", &["task"]),
    ("trace.rs", &["task"]),
    ("sandbox", &[]),
    ("config", &["task"]),
    ("telemetry", &["task"]),
    ("ledger", &["task", "clock", "config"]),
    ("redis", &["task", "config"]),
    ("timer", &["task", "clock", "config", "redis", "telemetry"]),
    (
        "handler",
        &["task", "clock", "config", "ledger", "redis", "trace"],
    ),
    ("membership", &["task", "clock", "config", "redis"]),
    ("limiter", &["task", "config", "ledger", "redis"]),
    (
        "engine",
        &[
            "membership",
            "limiter",
            "task",
            "clock",
            "config",
            "ledger",
            "timer",
            "handler",
            "telemetry",
            "trace",
        ],
    ),
    (
        "client",
        &["task", "clock", "config", "ledger", "timer", "trace"],
    ),
    ("http", &["config", "engine", "telemetry"]),
    (
        "testing",
        &[
            "client",
            "clock",
            "config",
            "engine",
            "membership",
            "handler",
            "ledger",
            "limiter",
            "task",
            "telemetry",
            "timer",
        ],
    ),
];

/// Drivers, and the only places that may name them.
const DRIVERS: [(&str, &[&str]); 10] = [
    (
        "sqlx::",
        &[
            "ledger/mysql",
            "ledger/migrate",
            "client",
            "doctor",
            "sandbox",
            "cli/bench",
            "lib.rs",
        ],
    ),
    (
        "redis::",
        &["redis", "timer", "doctor", "sandbox", "cli/bench", "lib.rs"],
    ),
    (
        "ledger::mysql",
        &[
            "ledger",
            "client",
            "compose",
            "cli",
            "doctor",
            "lib.rs",
            "handler/transaction.rs",
            "limiter/ledger_limiter.rs",
        ],
    ),
    ("timer::key_expiry", &["timer", "compose", "lib.rs"]),
    ("RedisMembership", &["membership", "compose", "doctor"]),
    ("reqwest::", &["handler/webhook", "handler/targets.rs"]),
    ("limiter::ledger_limiter", &["limiter", "compose"]),
    ("limiter::redis_limiter", &["limiter", "compose"]),
    ("axum::", &["http"]),
    ("clap::", &["cli", "main.rs"]),
];

#[test]
fn a_module_imports_downward_only() {
    for (module, allowed) in MAY_USE {
        for (file, line) in lines_of(module) {
            let Some(path) = line.trim_start().strip_prefix("use crate::") else {
                continue;
            };
            let own = module.trim_end_matches(".rs");
            let fits = path.starts_with(own) || allowed.iter().any(|name| path.starts_with(name));
            assert!(
                fits,
                "{}: `{}`: `{module}` may use {allowed:?}",
                file.display(),
                line.trim()
            );
        }
    }
}

#[test]
fn only_adapters_name_drivers() {
    for (driver, allowed) in DRIVERS {
        for (file, line) in lines_of("") {
            let place = file
                .strip_prefix(source())
                .expect("listed below it")
                .to_string_lossy()
                .into_owned();
            let code = line.split("//").next().unwrap_or_default();
            let names = code.contains(driver) && !code.contains("crate::redis::");
            let fits = allowed.iter().any(|prefix| place.starts_with(prefix));
            assert!(
                !names || fits,
                "{place}: `{}`: only {allowed:?} may name `{driver}`",
                line.trim()
            );
        }
    }
}

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// The lines of a module, without its unit tests, which may have a file of their own.
fn lines_of(module: &str) -> Vec<(PathBuf, String)> {
    let mut lines = Vec::new();
    let mut places = vec![source().join(module)];
    while let Some(place) = places.pop() {
        if place.file_name().is_some_and(|name| name == "tests.rs") {
            continue;
        }
        if place.is_dir() {
            places.extend(
                std::fs::read_dir(&place)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
            continue;
        }
        let text = std::fs::read_to_string(&place).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        lines.extend(code.lines().map(|line| (place.clone(), line.to_owned())));
    }
    assert!(!lines.is_empty(), "`{module}` is not there");
    lines
}
