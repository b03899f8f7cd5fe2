//! A module names what is below it only. Reads `use` declarations and the paths in code, and names the offending one.

mod rules;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::Regex;

use self::rules::{ADAPTERS, DRIVERS, MAY_USE};
use crate::source_files::{Module, SourceFile, references, source_files};

#[test]
fn a_module_names_lower_modules_only() {
    let mut faults = Vec::new();
    for (module, allowed) in MAY_USE {
        for file in files_of(module) {
            let named = forbidden(file, module, allowed).into_iter();
            faults.extend(named.map(|path| {
                let file = &file.path;
                format!("{file}: `{path}`: `{module}` may name {allowed:?} only")
            }));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// The files of a module, in all packages that have a part of it.
fn files_of(module: &str) -> Vec<&'static SourceFile> {
    let name = module.trim_end_matches(".rs");
    let files = source_files("").into_iter();
    let files: Vec<_> = files
        .filter(|file| module_name(&file.module) == Some(name))
        .collect();
    assert!(!files.is_empty(), "`{module}` is not there");
    files
}

/// The module that a path leads into. The parts of a module in other packages are that module.
fn module_name(path: &Module) -> Option<&str> {
    let names: Vec<&str> = path.iter().map(String::as_str).collect();
    match names[..] {
        ["core" | "server", name, ..] | ["redis", name @ "timer", ..] => Some(name),
        ["redis", "alarms", ..] => Some("timer"),
        ["mysql" | "sqlite", ..] => Some("ledger"),
        [name, ..] => Some(name),
        [] => None,
    }
}

/// The modules that this file of `module` names without being allowed to.
fn forbidden(file: &SourceFile, module: &str, allowed: &[&str]) -> Vec<String> {
    let own = module.trim_end_matches(".rs");
    let is_allowed = |path: &Module| {
        let top = module_name(path);
        // Every module may format numbers.
        top.is_none_or(|top| top == own || top == "format" || allowed.contains(&top))
    };
    let named = references(file).into_iter();
    named
        .filter(|path| !is_allowed(path))
        .map(|path| path.join("::"))
        .collect()
}

#[test]
fn only_adapters_name_drivers() {
    for (driver, allowed) in DRIVERS {
        let is_named = naming(driver);
        for file in source_files("")
            .into_iter()
            .filter(|file| !is_in(file, allowed))
        {
            for line in file.bare.lines().map(str::trim) {
                assert!(
                    !is_named.is_match(line),
                    "{}: `{line}`: only {allowed:?} may name `{driver}`",
                    file.path
                );
            }
        }
    }
}

/// Matches a path that begins with a crate, and its import.
fn naming(driver: &str) -> Regex {
    let path = format!(r"(?:^|[^\w:]|[^\w:>]::){driver}::");
    Regex::new(&format!(r"{path}|use (?:::)?{driver}(?:;| as )")).unwrap()
}

#[test]
fn only_compose_and_doctor_name_adapters() {
    // The simulator composes daemons of its own.
    let files = source_files("").into_iter();
    let files = files.filter(|file| !file.path.starts_with("simulator/"));
    let named: Vec<_> = files.map(|file| (file, references(file))).collect();
    for (adapter, allowed) in ADAPTERS {
        let adapter: Module = adapter.split("::").map(str::to_owned).collect();
        for (file, paths) in named.iter().filter(|(file, _)| !is_in(file, allowed)) {
            for path in paths {
                assert!(
                    !path.starts_with(&adapter),
                    "{}: `{}`: only {allowed:?} may name it",
                    file.path,
                    path.join("::")
                );
            }
        }
    }
}

fn is_in(file: &SourceFile, places: &[&str]) -> bool {
    places.iter().any(|prefix| file.path.starts_with(prefix))
}

/// A row whose place is gone would allow a later file of that name what nobody decided.
#[test]
fn each_place_that_may_name_a_driver_names_it() {
    let mut unused = Vec::new();
    let mut look = |name: &str, allowed: &[&str], names: &dyn Fn(&SourceFile) -> bool| {
        for place in allowed {
            let mut files = source_files("").into_iter();
            if !files.any(|file| is_in(file, &[place]) && names(file)) {
                unused.push(format!("nothing in `{place}` names `{name}`"));
            }
        }
    };
    for (driver, allowed) in DRIVERS {
        let is_named = naming(driver);
        look(driver, allowed, &|file| is_named.is_match(&file.bare));
    }
    for (adapter, allowed) in ADAPTERS {
        let module: Module = adapter.split("::").map(str::to_owned).collect();
        let names = |file: &SourceFile| {
            // Its own files need not name it.
            let mut named = references(file).into_iter();
            file.module.starts_with(&module) || named.any(|path| path.starts_with(&module))
        };
        look(adapter, allowed, &names);
    }
    assert!(unused.is_empty(), "delete it there:\n{}", unused.join("\n"));
}

#[test]
fn a_path_upward_is_seen_however_it_is_written() {
    let file = |bare: &str| SourceFile {
        path: "timer/alarm.rs".into(),
        module: ["timer", "alarm"].map(str::to_owned).to_vec(),
        package: Module::new(),
        code: bare.into(),
        bare: bare.into(),
        strings: Vec::new(),
    };
    for code in [
        "use crate::engine::Deps;",
        "use crate::{task::Key, engine::Deps};",
        "use super::super::engine::Deps;",
        "fn f(deps: &crate::engine::Deps) {}",
        "fn f() { super::super::engine::go() }",
    ] {
        let found = forbidden(&file(code), "timer", &["task"]);
        assert_eq!(found.len(), 1, "{code}: {found:?}");
    }
    assert!(
        forbidden(
            &file("use super::Cause; use crate::task::Key;"),
            "timer",
            &["task"]
        )
        .is_empty()
    );
}

#[test]
fn a_driver_is_seen_and_a_module_of_its_name_is_not() {
    let redis = naming("redis");
    for code in [
        "use redis::Cmd;",
        "pub use ::redis;",
        "fn f(c: redis::Cmd) {}",
    ] {
        assert!(redis.is_match(code), "{code}");
    }
    for code in [
        "use crate::redis::Facts;",
        "use super::redis::x;",
        "mod redis;",
    ] {
        assert!(!redis.is_match(code), "{code}");
    }
}

/// An inherent `impl` elsewhere is a call between files that no `use` line shows.
///
/// `compose` has the constructors that name concrete adapters.
#[test]
fn a_type_has_its_methods_in_its_file_or_below() {
    let files: Vec<&SourceFile> = source_files("")
        .into_iter()
        .filter(|file| !file.path.starts_with("compose"))
        .collect();
    let mut homes: BTreeMap<String, Vec<&Module>> = BTreeMap::new();
    for file in &files {
        for name in definitions(&file.code) {
            homes.entry(name).or_default().push(&file.module);
        }
    }
    let strays: Vec<String> = files
        .iter()
        .flat_map(|file| inherent_impls(&file.code).map(move |name| (file, name)))
        .filter(|(file, name)| {
            let mut homes = homes.get(name).into_iter().flatten();
            !homes.any(|home| file.module.starts_with(home))
        })
        .map(|(file, name)| format!("{}: impl {name}", file.path))
        .collect();
    assert!(strays.is_empty(), "{}", strays.join("\n"));
}

/// The names of the types that this code gives methods of their own.
fn inherent_impls(code: &str) -> impl Iterator<Item = String> {
    static BLOCK: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"(?m)^ *impl\b([^{;]*)\{").unwrap());
    static NAME: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^\w+").unwrap());
    let names: Vec<String> = BLOCK
        .captures_iter(code)
        .map(|found| without_generics(&found[1]))
        .filter(|head| !head.contains(" for "))
        .filter_map(|head| Some(NAME.find(head.trim())?.as_str().to_owned()))
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

/// The names of the types that this code defines.
fn definitions(code: &str) -> impl Iterator<Item = String> {
    static DEFINITION: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"(?m)^ *(?:pub(?:\([^)]*\))? )?(?:struct|enum) (\w+)").unwrap()
    });
    let names = DEFINITION.captures_iter(code);
    names.map(|found| found[1].to_owned())
}

#[test]
fn inherent_impls_are_told_from_impls_of_traits() {
    let code = "impl<T: Into<A<B>>> Own<T> {}\nimpl From<A> for Other {}\nimpl Third {}\n";
    let names: Vec<String> = inherent_impls(code).collect();
    assert_eq!(names, ["Own", "Third"]);
}
