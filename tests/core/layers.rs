//! A module imports downward only. Reads the `use` lines, and names the offending one.

use crate::source_files::{SourceFile, source_files};

/// Each module, and the modules of the crate it may name.
const MAY_USE: [(&str, &[&str]); 18] = [
    ("task", &[]),
    ("clock.rs", &["task"]),
    ("trace.rs", &["task"]),
    ("net", &["ledger", "telemetry"]),
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
    (
        "alerts",
        &["clock", "config", "engine", "handler", "task", "telemetry"],
    ),
    (
        "http",
        &[
            "client",
            "config",
            "engine",
            "ledger",
            "membership",
            "net",
            "task",
            "telemetry",
            "trace",
        ],
    ),
    (
        "resp",
        &[
            "client",
            "clock",
            "config",
            "engine",
            "ledger",
            "net",
            "task",
            "telemetry",
        ],
    ),
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
const DRIVERS: [(&str, &[&str]); 11] = [
    (
        "sqlx::",
        &[
            "ledger/mysql",
            "ledger/migrate",
            "ledger/transactions.rs",
            "client",
            "doctor",
            "sandbox",
            "cli/bench",
            "cli/import",
            "lib.rs",
        ],
    ),
    (
        "redis::",
        &[
            "redis",
            "timer",
            "doctor",
            "sandbox",
            "cli/bench",
            "cli/import",
            "lib.rs",
        ],
    ),
    (
        "ledger::mysql",
        &[
            "ledger",
            "compose",
            "cli",
            "doctor",
            "lib.rs",
            "limiter/ledger_limiter.rs",
        ],
    ),
    ("timer::key_expiry", &["timer", "compose", "lib.rs"]),
    ("RedisMembership", &["membership", "compose", "doctor"]),
    (
        "reqwest::",
        &["handler/webhook", "handler/targets.rs", "cli/otel"],
    ),
    ("opentelemetry", &["cli/otel"]),
    ("limiter::ledger_limiter", &["limiter", "compose"]),
    ("limiter::redis_limiter", &["limiter", "compose"]),
    ("axum::", &["http"]),
    ("clap::", &["cli"]),
];

#[test]
fn a_module_imports_downward_only() {
    for (module, allowed) in MAY_USE {
        for file in source_files(module) {
            for line in file.code.lines().map(str::trim) {
                let Some(path) = line.strip_prefix("use crate::") else {
                    continue;
                };
                let own = module.trim_end_matches(".rs");
                let fits =
                    path.starts_with(own) || allowed.iter().any(|name| path.starts_with(name));
                let path = &file.path;
                assert!(fits, "{path}: `{line}`: `{module}` may use {allowed:?}");
            }
        }
    }
}

#[test]
fn only_adapters_name_drivers() {
    for (driver, allowed) in DRIVERS {
        for file in source_files("") {
            let path = &file.path;
            if allowed.iter().any(|prefix| path.starts_with(prefix)) {
                continue;
            }
            for line in file.code.lines().map(str::trim) {
                let code = line.split("//").next().unwrap_or_default();
                let names_it = code.contains(driver) && !code.contains("crate::redis::");
                assert!(
                    !names_it,
                    "{path}: `{line}`: only {allowed:?} may name `{driver}`"
                );
            }
        }
    }
}

/// An inherent `impl` elsewhere is a call between files that no `use` line shows.
///
/// `compose` has the constructors that name concrete adapters.
#[test]
fn a_type_has_its_methods_in_its_file_or_below() {
    let files: Vec<SourceFile> = source_files("")
        .into_iter()
        .filter(|file| !file.path.starts_with("compose"))
        .collect();
    let strays: Vec<String> = files
        .iter()
        .flat_map(|file| inherent_impls(&file.code).map(move |name| (file, name)))
        .filter(|(file, name)| {
            let defined_in = |home: &&SourceFile| file.module.starts_with(&home.module);
            !files
                .iter()
                .filter(defined_in)
                .any(|home| defines(&home.code, name))
        })
        .map(|(file, name)| format!("{}: impl {name}", file.path))
        .collect();
    assert!(strays.is_empty(), "{}", strays.join("\n"));
}

/// The names of the types that this code gives methods of their own.
fn inherent_impls(code: &str) -> impl Iterator<Item = String> {
    let block = regex::Regex::new(r"(?m)^ *impl\b([^{;]*)\{").unwrap();
    let name = regex::Regex::new(r"^\w+").unwrap();
    let names: Vec<String> = block
        .captures_iter(code)
        .map(|found| without_generics(&found[1]))
        .filter(|head| !head.contains(" for "))
        .filter_map(|head| Some(name.find(head.trim())?.as_str().to_owned()))
        .collect();
    names.into_iter()
}

/// The text outside all angle brackets.
fn without_generics(text: &str) -> String {
    let mut depth = 0;
    let outside = text.chars().filter(|c| {
        depth += i32::from(*c == '<');
        let is_outside = depth == 0;
        depth -= i32::from(*c == '>');
        is_outside
    });
    outside.collect()
}

fn defines(code: &str, name: &str) -> bool {
    let definition = format!(r"(?m)^ *(?:pub(?:\([^)]*\))? )?(?:struct|enum) {name}\b");
    regex::Regex::new(&definition).unwrap().is_match(code)
}

#[test]
fn inherent_impls_are_told_from_impls_of_traits() {
    let code = "impl<T: Into<A<B>>> Own<T> {}\nimpl From<A> for Other {}\nimpl Third {}\n";
    let names: Vec<String> = inherent_impls(code).collect();
    assert_eq!(names, ["Own", "Third"]);
}
