//! No circle of files: a file never imports itself through others.
//!
//! Reads the `use` declarations. A name that a parent re-exports counts as imported from the file that defines it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::source_files::{Module, package_of, source_files};

#[test]
fn no_file_imports_itself_through_others() {
    let sources = Sources::read();
    let imports = sources.imports();
    let circles: Vec<String> = imports
        .keys()
        .filter_map(|module| circle_through(module, &imports))
        .map(|circle| {
            let names: Vec<String> = circle.iter().map(|module| module.join("::")).collect();
            names.join(" -> ")
        })
        .collect();
    assert!(circles.is_empty(), "circles:\n{}", circles.join("\n"));
}

/// The shortest way from a module back to itself.
fn circle_through(
    start: &Module,
    imports: &BTreeMap<Module, BTreeSet<Module>>,
) -> Option<Vec<Module>> {
    let mut seen = BTreeSet::new();
    let mut ways = VecDeque::from([vec![start.clone()]]);
    while let Some(way) = ways.pop_front() {
        let last = way.last().expect("a way has a start");
        for next in imports.get(last).into_iter().flatten() {
            let mut way = way.clone();
            way.push(next.clone());
            if next == start {
                return Some(way);
            }
            if seen.insert(next.clone()) {
                ways.push_back(way);
            }
        }
    }
    None
}

/// The `use` declarations of every file.
struct Sources {
    /// What each file imports for itself.
    uses: BTreeMap<Module, Vec<Module>>,
    /// What each file re-exports: the name, and where it comes from.
    re_exports: BTreeMap<Module, BTreeMap<String, Module>>,
}

impl Sources {
    fn read() -> Self {
        let files = source_files("");
        let modules: BTreeSet<Module> = files.iter().map(|file| file.module.clone()).collect();
        let (mut uses, mut re_exports) = (BTreeMap::new(), BTreeMap::new());
        for file in &files {
            let module = file.module.clone();
            let (mut own, mut public) = (Vec::new(), BTreeMap::new());
            for (is_public, path) in declarations(&file.code) {
                let Some(path) = absolute(&module, &path, &modules) else {
                    continue;
                };
                match path.last() {
                    Some(name) if is_public && name != "*" => {
                        public.insert(name.clone(), path);
                    }
                    _ => own.push(path),
                }
            }
            uses.insert(module.clone(), own);
            re_exports.insert(module, public);
        }
        Self { uses, re_exports }
    }

    fn imports(&self) -> BTreeMap<Module, BTreeSet<Module>> {
        let imports = self.uses.iter().map(|(module, paths)| {
            let targets = paths
                .iter()
                .filter_map(|path| self.defined_in(path.clone()));
            let others = targets.filter(|target| target != module);
            (module.clone(), others.collect())
        });
        imports.collect()
    }

    /// The file that defines what a path names.
    fn defined_in(&self, path: Module) -> Option<Module> {
        let length = (1..=path.len())
            .rev()
            .find(|length| self.uses.contains_key(&path[..*length]))?;
        let (module, rest) = path.split_at(length);
        let origin = rest
            .first()
            .and_then(|name| self.re_exports.get(module)?.get(name));
        match origin {
            Some(origin) if *origin != path => {
                let mut path = origin.clone();
                path.extend_from_slice(&rest[1..]);
                self.defined_in(path)
            }
            _ => Some(module.to_vec()),
        }
    }
}

/// Each path that is imported, and whether it is re-exported.
fn declarations(code: &str) -> Vec<(bool, String)> {
    let declaration = regex::Regex::new(r"(?m)^\s*(pub(?:\([^)]*\))? )?use ([^;]+);").unwrap();
    let mut found = Vec::new();
    for captures in declaration.captures_iter(code) {
        let tree: String = captures[2].split_whitespace().collect::<Vec<_>>().join(" ");
        let is_public = captures.get(1).is_some();
        found.extend(branches(&tree).into_iter().map(|path| (is_public, path)));
    }
    found
}

/// The paths of a tree such as `a::{b, c::{d, e}}`.
fn branches(tree: &str) -> Vec<String> {
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

/// The path from `src`; `None` for a package that is not of this workspace.
fn absolute(module: &Module, path: &str, modules: &BTreeSet<Module>) -> Option<Module> {
    let names: Vec<String> = path
        .split("::")
        .map(|name| name.trim().to_owned())
        .collect();
    match names[0].as_str() {
        "crate" => Some([&package_of(module), &names[1..]].concat()),
        "lapsed" => Some(names[1..].to_vec()),
        "self" => Some([module, &names[1..]].concat()),
        "super" => {
            let up = names.iter().take_while(|name| *name == "super").count();
            Some([&module[..module.len() - up], &names[up..]].concat())
        }
        child => {
            let child = [module.as_slice(), &[child.to_owned()]].concat();
            let is_child = modules.contains(&child);
            is_child.then(|| [module.as_slice(), &names].concat())
        }
    }
}

#[test]
fn a_circle_is_found_through_a_re_export() {
    let module = |name: &str| vec![name.to_owned()];
    let imports = BTreeMap::from([
        (module("a"), BTreeSet::from([module("b")])),
        (module("b"), BTreeSet::from([module("c")])),
        (module("c"), BTreeSet::from([module("a")])),
    ]);
    let circle = circle_through(&module("a"), &imports).unwrap();
    assert_eq!(circle.len(), 4);
    assert_eq!(
        branches("crate::a::{b, c::{d, e as f}}"),
        ["crate::a::b", "crate::a::c::d", "crate::a::c::e"]
    );
}
