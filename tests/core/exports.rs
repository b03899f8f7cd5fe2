//! What users of the library can name. Read from the sources as rustfmt leaves them, so that no compiler but the
//! stable one is needed: an item of a module stands in the first column, its members four further on.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::support::snapshot::assert_snapshot;

const KINDS: [&str; 7] = ["fn", "struct", "enum", "trait", "type", "const", "static"];

#[test]
fn the_library_keeps_its_exports() {
    let mut exports = Exports::default();
    exports.add_module(&Module::root());
    exports.add_module(&Module::package("lapsed_server", "lapsed_server"));
    assert_snapshot("exports", exports.lines());
}

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// A file, and where those of its modules are.
#[derive(Clone)]
struct Module {
    path: String,
    file: PathBuf,
    children: PathBuf,
}

impl Module {
    fn root() -> Self {
        Self {
            path: "lapsed".into(),
            file: source().join("lib.rs"),
            children: source(),
        }
    }

    fn child(&self, name: &str) -> Self {
        let folder = self.children.join(name);
        let file = match folder.join("mod.rs") {
            file if file.exists() => file,
            _ => folder.with_extension("rs"),
        };
        Self {
            path: format!("{}::{name}", self.path),
            file,
            children: folder,
        }
    }

    /// The text of the file, with what `section!` declares in the first column, as other items are.
    fn text(&self) -> String {
        let text = std::fs::read_to_string(&self.file)
            .unwrap_or_else(|error| panic!("read {}: {error}", self.file.display()));
        let mut is_declared = false;
        let lines = text.lines().map(|line| {
            is_declared = line == "section! {" || is_declared && line != "}";
            let item = line.strip_prefix("    ").filter(|_| is_declared);
            item.unwrap_or(line)
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    /// The root of a package below `src`, which is named by the path at which the library exports something of it.
    fn package(name: &str, path: &str) -> Self {
        let folder = source().join(name.trim_start_matches("lapsed_"));
        Self {
            path: path.to_owned(),
            file: folder.join("lib.rs"),
            children: folder,
        }
    }

    /// The root of the package that this module is in.
    fn package_root(&self) -> Self {
        let below = self.file.strip_prefix(source()).unwrap();
        let package = below.iter().next().unwrap().to_string_lossy();
        match source().join(&*package).join("Cargo.toml").exists() {
            true => Self::package(&package, &self.path),
            false => Self::root(),
        }
    }

    /// The folder below `src` in which the methods of its types are looked for.
    fn area(&self) -> PathBuf {
        let below = self.file.strip_prefix(source()).unwrap();
        if below.ends_with("lib.rs") {
            return self.children.clone();
        }
        let is_package = source()
            .join(below.iter().next().unwrap())
            .join("Cargo.toml");
        let depth = 1 + usize::from(is_package.exists());
        source().join(below.iter().take(depth).collect::<PathBuf>())
    }
}

/// Public items by where they are defined, and the paths by which they can be named.
#[derive(Default)]
struct Exports {
    modules: BTreeSet<String>,
    items: BTreeMap<(PathBuf, String, String), BTreeSet<String>>,
    members: BTreeMap<(PathBuf, String, String), Vec<String>>,
}

impl Exports {
    /// Everything that is public in a module and in its public modules.
    fn add_module(&mut self, module: &Module) {
        for item in items(&module.text()) {
            match item.kind.as_str() {
                // A module in its place, with imports alone.
                "mod" if !item.members.is_empty() => {
                    let path = format!("{}::{}", module.path, item.name);
                    for import in item.members.iter().flat_map(|import| imports(import)) {
                        self.add_import(module, &path, &import);
                    }
                    self.modules.insert(path);
                }
                "mod" => {
                    let child = module.child(&item.name);
                    self.modules.insert(child.path.clone());
                    self.add_module(&child);
                }
                "use" => {
                    for import in imports(&item.name) {
                        self.add_import(module, &module.path, &import);
                    }
                }
                _ => self.add(module, format!("{}::{}", module.path, item.name), item),
            }
        }
    }

    /// A `pub use` of an item in a private module is what makes it public.
    fn add_import(&mut self, from: &Module, path: &str, import: &str) {
        let (import, alias) = import.split_once(" as ").unwrap_or((import, ""));
        let (place, name) = import.rsplit_once("::").unwrap_or(("self", import));
        let alias = if alias.is_empty() { name } else { alias };
        let mut at = from.clone();
        for part in place.split("::") {
            at = match part {
                "self" => at,
                "crate" => at.package_root(),
                package if package.starts_with("lapsed_") => Module::package(package, path),
                part => at.child(part),
            };
            // The root of the library names modules of the core as its own.
            if !at.file.exists() && at.file.starts_with(source()) {
                let core = Module::package("lapsed_core", path);
                at = core.child(part);
            }
        }
        if !at.file.exists() {
            self.modules.insert(format!("{path}::{alias} of {place}"));
            return;
        }
        if name == "*" || name == "self" {
            at.path = format!("{path}::{alias}").replace("::*", "");
            self.modules
                .extend((name == "self").then(|| at.path.clone()));
            self.add_module(&at);
            return;
        }
        for item in items(&at.text()) {
            if item.kind == "mod" && item.name == name {
                let mut module = at.child(name);
                module.path = format!("{path}::{alias}");
                self.modules.insert(module.path.clone());
                self.add_module(&module);
            } else if item.kind == "use" {
                let imports = imports(&item.name).into_iter();
                let inner = imports.filter(|import| import.rsplit([':', ' ']).next() == Some(name));
                inner.for_each(|import| self.add_import(&at, path, &import));
            } else if item.name == name {
                self.add(&at, format!("{path}::{alias}"), item);
            }
        }
    }

    fn add(&mut self, module: &Module, path: String, item: Item) {
        let mut members = item.members;
        if ["struct", "enum"].contains(&item.kind.as_str()) {
            for file in files(module.area()) {
                let text = std::fs::read_to_string(file).unwrap();
                members.extend(methods(&text, &item.name));
            }
        }
        let definition = (module.file.clone(), item.name, item.kind);
        self.members.insert(definition.clone(), members);
        self.items.entry(definition).or_default().insert(path);
    }

    /// Members are listed once, below the shortest path.
    fn lines(self) -> Vec<String> {
        let modules = self.modules.into_iter().map(|path| format!("{path} mod"));
        let mut lines: Vec<String> = modules.collect();
        for (definition, paths) in self.items {
            let shortest = paths.iter().min_by_key(|path| path.matches("::").count());
            let members = self.members[&definition].iter();
            let shortest = shortest.expect("it has been found by some path");
            lines.extend(members.map(|member| format!("{shortest}::{member}")));
            let kind = &definition.2;
            lines.extend(paths.iter().map(|path| format!("{path} {kind}")));
        }
        lines
    }
}

fn files(place: PathBuf) -> Vec<PathBuf> {
    if !place.is_dir() {
        return vec![place];
    }
    let entries = std::fs::read_dir(&place).unwrap();
    let files = entries.flat_map(|entry| files(entry.unwrap().path()));
    let is_rust = |file: &PathBuf| file.extension().is_some_and(|end| end == "rs");
    files.filter(is_rust).collect()
}

#[derive(Debug)]
struct Item {
    kind: String,
    /// Of a `use`, everything behind it.
    name: String,
    /// Public fields, variants, and what a trait asks for.
    members: Vec<String>,
}

/// The public items of a file, except those of tests and those hidden from the documentation.
fn items(text: &str) -> Vec<Item> {
    let mut items = Vec::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if line == "#[cfg(test)]" || line.starts_with("#[doc(hidden)]") {
            lines.next();
        }
        let Some((kind, rest)) = public(line) else {
            continue;
        };
        let mut block = rest.to_owned();
        if kind == "use" {
            while !block.ends_with(';') {
                block = format!("{block} {}", lines.next().unwrap().trim());
            }
        }
        let name = match kind {
            "use" => block.trim_end_matches(';').to_owned(),
            _ => identifier(rest).to_owned(),
        };
        let mut members = Vec::new();
        if line.ends_with('{') && kind == "mod" {
            let body = lines.by_ref().take_while(|line| *line != "}");
            let uses = body.filter_map(|line| line.trim().strip_prefix("pub use "));
            members.extend(uses.map(|path| path.trim_end_matches(';').to_owned()));
        }
        if line.ends_with('{') && ["struct", "enum", "trait"].contains(&kind) {
            for line in lines.by_ref().take_while(|line| *line != "}") {
                members.extend(member(kind, line));
            }
        }
        let kind = kind.to_owned();
        items.push(Item {
            kind,
            name,
            members,
        });
    }
    items
}

/// The kind of a public item that begins on this line, and what follows.
fn public(line: &str) -> Option<(&str, &str)> {
    let mut rest = line.strip_prefix("pub ")?;
    loop {
        let (word, after) = rest.split_once(' ')?;
        if word == "const" && after.starts_with("fn ") || ["async", "unsafe"].contains(&word) {
            rest = after;
        } else {
            let is_item = KINDS.contains(&word) || word == "use" || word == "mod";
            return is_item.then_some((word, after));
        }
    }
}

fn member(kind: &str, line: &str) -> Option<String> {
    let code = line.strip_prefix("    ")?;
    match kind {
        "struct" => Some(format!("{} field", identifier(code.strip_prefix("pub ")?))),
        "enum" => {
            let is_variant = code.starts_with(|c: char| c.is_ascii_uppercase());
            is_variant.then(|| format!("{} variant", identifier(code)))
        }
        _ => {
            let code = code.strip_prefix("async ").unwrap_or(code);
            let (word, name) = code.split_once(' ')?;
            let is_asked = ["fn", "type", "const"].contains(&word);
            is_asked.then(|| format!("{} {word}", identifier(name)))
        }
    }
}

/// The public functions and constants of the type's own `impl` blocks.
fn methods(text: &str, of: &str) -> Vec<String> {
    let mut methods = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(head) = line.strip_prefix("impl") else {
            continue;
        };
        let head = match head.strip_prefix('<') {
            Some(_) => head.split_once("> ").map_or("", |(_, name)| name),
            None => head.trim_start(),
        };
        if identifier(head) != of || head.contains(" for ") {
            continue;
        }
        for line in lines.by_ref().take_while(|line| *line != "}") {
            let public = line.strip_prefix("    ").and_then(public);
            methods.extend(public.map(|(kind, name)| format!("{} {kind}", identifier(name))));
        }
    }
    methods
}

/// `a::{B, c::D}` one by one, one level of braces deep.
fn imports(of: &str) -> Vec<String> {
    match of.split_once('{') {
        None => vec![of.to_owned()],
        Some((path, names)) => {
            let names = names.trim_end_matches(['}', ' ']).split(',');
            let names = names.map(str::trim).filter(|name| !name.is_empty());
            names.map(|name| format!("{path}{name}")).collect()
        }
    }
}

fn identifier(code: &str) -> &str {
    let end = code.find(|c: char| !c.is_alphanumeric() && c != '_');
    &code[..end.unwrap_or(code.len())]
}
