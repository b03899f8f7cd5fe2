//! The source files of the packages below `src`, without their unit tests.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use regex::{Captures, Regex};

/// The path of a module: the names from `src` to it.
pub type Module = Vec<String>;

/// A source file.
#[derive(Debug, Clone)]
pub struct SourceFile {
    /// Path below `src`.
    pub path: String,
    pub module: Module,
    /// The module that `crate` names: the nearest directory with a `Cargo.toml`.
    pub package: Module,
    /// The text without unit tests.
    pub code: String,
    /// The code without comments, and with empty strings.
    pub bare: String,
    /// The contents of the strings.
    pub strings: Vec<String>,
}

static FILES: LazyLock<Vec<SourceFile>> = LazyLock::new(read_all);

/// The files below a directory of `src`, or one file.
pub fn source_files(below: &str) -> Vec<&'static SourceFile> {
    let files = FILES.iter().filter(|file| {
        let rest = file.path.strip_prefix(below);
        rest.is_some_and(|rest| below.is_empty() || rest.is_empty() || rest.starts_with('/'))
    });
    let files: Vec<&SourceFile> = files.collect();
    assert!(!files.is_empty(), "`{below}` is not there");
    files
}

fn read_all() -> Vec<SourceFile> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut paths, mut packages, mut places) = (Vec::new(), Vec::new(), vec![root.clone()]);
    while let Some(place) = places.pop() {
        let is_of_package = |place: &Path| {
            place
                .parent()
                .is_some_and(|at| at.join("Cargo.toml").is_file())
        };
        if place.ends_with("tests") && is_of_package(&place) && place != root.join("tests") {
            // Test binaries of a package.
        } else if place.is_dir() {
            let entries = std::fs::read_dir(&place).unwrap();
            places.extend(entries.map(|entry| entry.unwrap().path()));
        } else if place.ends_with("Cargo.toml") {
            let package = place.parent().expect("a file is in a directory");
            packages.push(names(package.strip_prefix(&root).expect("below it")));
        } else if place.extension().is_some_and(|end| end == "rs") {
            paths.push(place);
        }
    }
    paths.sort();
    let mut test_modules = BTreeSet::new();
    let mut files = Vec::new();
    for path in paths {
        let (file, for_tests) = read(&root, &path, &packages);
        let declared = for_tests.into_iter().map(|name| {
            let mut module = file.module.clone();
            module.push(name);
            module
        });
        test_modules.extend(declared);
        files.push(file);
    }
    files.retain(|file| {
        let is_for_tests = |length| test_modules.contains(&file.module[..length]);
        !(1..=file.module.len()).any(is_for_tests)
    });
    for file in &files {
        let left = file.code.contains("#[test]") || file.code.contains("#[tokio::test");
        assert!(
            !left,
            "{}: a unit test was taken for product code",
            file.path
        );
    }
    files
}

/// A file, and the names of its modules that are compiled for tests alone.
fn read(root: &Path, path: &Path, packages: &[Module]) -> (SourceFile, Vec<String>) {
    let below: PathBuf = path.strip_prefix(root).expect("listed below it").into();
    let directory = names(below.parent().unwrap_or(Path::new("")));
    let package = packages.iter().filter(|name| directory.starts_with(name));
    let package = package.max_by_key(|name| name.len());
    let package = package.cloned().unwrap_or_default();
    let text = std::fs::read_to_string(path).unwrap();
    let (code, test_modules) = without_tests(&text);
    let (bare, strings) = split(&code);
    let file = SourceFile {
        path: below.to_string_lossy().into_owned(),
        module: module_of(&below, &package),
        package,
        code,
        bare,
        strings,
    };
    (file, test_modules)
}

fn names(path: &Path) -> Module {
    let names = path.iter().map(|name| name.to_string_lossy().into_owned());
    names.collect()
}

fn module_of(path: &Path, package: &Module) -> Module {
    let mut module = names(&path.with_extension(""));
    let is_root = module.len() == package.len() + 1;
    let last = module.last().map(String::as_str);
    // A package may have a `main.rs` beside its `lib.rs`.
    if last == Some("mod") || is_root && last == Some("lib") {
        module.pop();
    }
    module
}

/// The code without the items that are compiled for tests alone, and the names of modules among them that are files.
///
/// An item ends where rustfmt ends it: on its line, or with a line that is indented as its first.
pub fn without_tests(text: &str) -> (String, Vec<String>) {
    let (mut code, mut modules) = (String::new(), Vec::new());
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let attribute = line.trim_start();
        if !(attribute.starts_with("#[cfg(test)]") || attribute.starts_with("#[cfg(all(test,")) {
            code.push_str(line);
            code.push('\n');
            continue;
        }
        let item = lines.find(|line| !line.trim_start().starts_with("#["));
        let item = item.expect("an attribute is before an item");
        let module = item.trim().strip_prefix("mod ");
        modules.extend(module.and_then(|name| Some(name.strip_suffix(';')?.to_owned())));
        if !item.ends_with([';', '}', ',']) {
            let indent = &item[..item.len() - item.trim_start().len()];
            let ends = |line: &&str| {
                let rest = line.strip_prefix(indent).unwrap_or_default();
                rest.starts_with(['}', ')']) && rest.ends_with(['}', ';'])
            };
            lines.find(ends).expect("an item ends");
        }
    }
    (code, modules)
}

/// The code without comments and with empty strings, and the contents of the strings.
pub fn split(code: &str) -> (String, Vec<String>) {
    static TOKEN: LazyLock<Regex> = LazyLock::new(|| {
        let comment = r"//[^\n]*|/\*(?s:.*?)\*/";
        let raw = r####"r###"(?<r3>(?s:.*?))"###|r##"(?<r2>(?s:.*?))"##|r#"(?<r1>(?s:.*?))"#|r"(?<r0>[^"]*)""####;
        let string = r#""(?<s>(?:[^"\\]|\\(?s:.))*)""#;
        let character = r"'(?:[^'\\]|\\u\{[^}]*\}|\\.)'";
        Regex::new(&format!("{comment}|{raw}|{string}|{character}")).unwrap()
    });
    let mut strings = Vec::new();
    let bare = TOKEN.replace_all(code, |found: &Captures<'_>| {
        let names = ["s", "r0", "r1", "r2", "r3"];
        match names.iter().find_map(|name| found.name(name)) {
            Some(string) => {
                strings.push(string.as_str().to_owned());
                "\"\""
            }
            None => "",
        }
    });
    (bare.into_owned(), strings)
}

/// What a file names: in `use` declarations, and by paths within its code that lead out of it. Each is a path from `src`.
pub fn references(file: &SourceFile) -> BTreeSet<Module> {
    static INLINE: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"\b(?:crate|super|lapsed(?:_\w+)?)(?:::\w+)+").unwrap());
    let declared = declarations(&file.bare).into_iter().map(|(_, path)| path);
    let code = DECLARATION.replace_all(&file.bare, "");
    let inline = INLINE.find_iter(&code).map(|path| path.as_str().to_owned());
    declared
        .chain(inline)
        .filter_map(|path| absolute(file, &path))
        .map(through_the_root)
        .collect()
}

/// Modules that the root of the library puts together from packages, and where the parts are. The longest path first.
const TOGETHER: [(&str, &str); 8] = [
    ("ledger::migrate", "mysql::migrate"),
    ("ledger::mysql", "mysql"),
    ("ledger::sqlite", "sqlite"),
    ("timer::key_expiry", "redis::timer::key_expiry"),
    ("timer::sorted_set", "redis::timer::sorted_set"),
    ("timer::wheel", "redis::timer::wheel"),
    ("ledger", "core::ledger"),
    ("timer", "core::timer"),
];

/// Where an item comes from that the root of the library re-exports, such as `crate::Config`.
fn through_the_root(path: Module) -> Module {
    for (named, place) in TOGETHER {
        let named: Module = named.split("::").map(str::to_owned).collect();
        if let Some(rest) = path.strip_prefix(&named[..]) {
            let place = place.split("::").map(str::to_owned);
            return place.chain(rest.iter().cloned()).collect();
        }
    }
    static ROOT: LazyLock<BTreeMap<String, Module>> = LazyLock::new(|| {
        let root = FILES.iter().find(|file| file.path == "lib.rs");
        let root = root.expect("a library has a root");
        let declared = declarations(&root.bare).into_iter();
        let origins = declared.filter_map(|(_, path)| absolute(root, &path));
        let named = origins.filter_map(|origin| Some((origin.last()?.clone(), origin)));
        named.collect()
    });
    let origin = path.first().and_then(|name| ROOT.get(name));
    match origin {
        Some(origin) => [&origin[..], &path[1..]].concat(),
        None => path,
    }
}

/// The path from `src`; `None` for one of another crate, or of an item that was imported by name.
pub fn absolute(file: &SourceFile, path: &str) -> Option<Module> {
    static MODULES: LazyLock<BTreeSet<&Module>> =
        LazyLock::new(|| FILES.iter().map(|file| &file.module).collect());
    let names: Vec<String> = path
        .split("::")
        .map(|name| name.trim().to_owned())
        .collect();
    match names[0].as_str() {
        "crate" => Some([&file.package, &names[1..]].concat()),
        // The RESP server has a module of this name, whose constant it reads.
        "lapsed" if names[1] == "COMMANDS" => None,
        "lapsed" if !file.package.is_empty() => Some(names[1..].to_vec()),
        package if PACKAGES.contains(&package) => {
            let place = package.trim_start_matches("lapsed_").to_owned();
            Some([&[place], &names[1..]].concat())
        }
        "self" => Some([&file.module, &names[1..]].concat()),
        "super" => {
            let up = names.iter().take_while(|name| *name == "super").count();
            let left = file.module.len().checked_sub(up)?;
            Some([&file.module[..left], &names[up..]].concat())
        }
        child => {
            let child = [&file.module, &[child.to_owned()][..]].concat();
            let is_child = MODULES.contains(&child);
            is_child.then(|| [&file.module, &names[..]].concat())
        }
    }
}

/// The packages in a directory of `src`, as code names them.
const PACKAGES: [&str; 7] = [
    "lapsed_core",
    "lapsed_doctor",
    "lapsed_mysql",
    "lapsed_redis",
    "lapsed_sandbox",
    "lapsed_server",
    "lapsed_sqlite",
];

static DECLARATION: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?m)^\s*(pub(?:\([^)]*\))? )?use ([^;]+);").unwrap());

/// Each path that is imported, and whether it is re-exported.
pub fn declarations(code: &str) -> Vec<(bool, String)> {
    let mut found = Vec::new();
    for captures in DECLARATION.captures_iter(code) {
        let tree: String = captures[2].split_whitespace().collect::<Vec<_>>().join(" ");
        let is_public = captures.get(1).is_some();
        found.extend(branches(&tree).into_iter().map(|path| (is_public, path)));
    }
    found
}

/// The paths of a tree such as `a::{b, c::{d, e}}`.
pub fn branches(tree: &str) -> Vec<String> {
    let tree = tree.trim();
    let Some((prefix, rest)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap_or_default();
        return vec![path.trim().to_owned()];
    };
    let inner = &rest[..rest.rfind('}').expect("braces are balanced")];
    let (mut paths, mut depth, mut begins) = (Vec::new(), 0, 0);
    let mut parts = Vec::new();
    for (at, c) in inner.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&inner[begins..at]);
                begins = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&inner[begins..]);
    for part in parts.into_iter().filter(|part| !part.trim().is_empty()) {
        paths.extend(branches(&format!("{prefix}{}", part.trim())));
    }
    paths
}

#[test]
fn product_code_after_an_item_for_tests_is_read() {
    let text = "use a::b;\n#[cfg(test)]\nmod tests;\n\n#[cfg(test)]\n#[allow(x)]\nimpl A {\n    fn t() {\n    }\n}\n\
        fn kept() {\n    #[cfg(test)]\n    count();\n    go();\n}\n#[cfg(all(test, unix))]\nmod unix {\n    #[test]\n    fn t() {}\n}\nfn last() {}\n";
    let (code, modules) = without_tests(text);
    assert_eq!(
        code,
        "use a::b;\n\nfn kept() {\n    go();\n}\nfn last() {}\n"
    );
    assert_eq!(modules, ["tests"]);
}

#[test]
fn comments_and_strings_are_no_code() {
    let code = "a(\"x // \\\" y\"); // b \"c\"\n/* d */ e('\"', r#\"f \"g\"\"#); 'h: loop {}";
    let (bare, strings) = split(code);
    assert_eq!(bare, "a(\"\"); \n e(, \"\"); 'h: loop {}");
    assert_eq!(strings, ["x // \\\" y", "f \"g\""]);
}

#[test]
fn each_line_of_product_code_is_read_in_files_that_declare_tests_first() {
    let lines: BTreeMap<&str, usize> = source_files("")
        .into_iter()
        .map(|file| (file.path.as_str(), file.code.lines().count()))
        .collect();
    for (path, at_least) in [
        ("server/resp/parser.rs", 250),
        ("membership/ownership/mod.rs", 200),
    ] {
        assert!(lines[path] > at_least, "{path}: {} lines", lines[path]);
    }
}

#[test]
fn paths_are_found_in_declarations_and_in_code() {
    let file = SourceFile {
        path: String::new(),
        module: ["a", "b", "c"].map(str::to_owned).to_vec(),
        package: Module::new(),
        code: String::new(),
        bare: "use crate::x::{y, self as z, w::{v as u}};\nuse sqlx::Row;\nfn f() { super::super::g::h(); crate::i::j() }\n".into(),
        strings: Vec::new(),
    };
    let found: BTreeSet<String> = references(&file)
        .iter()
        .map(|path| path.join("::"))
        .collect();
    let expected = ["x::y", "x::self", "x::w::v", "a::g::h", "i::j"];
    assert_eq!(found, expected.map(str::to_owned).into());
}
