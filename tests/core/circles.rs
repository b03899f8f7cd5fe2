//! No circle of files, and none of rooms: neither imports itself through others.
//!
//! Reads the `use` declarations, and the paths in code. A name that a parent re-exports counts as imported from the file that defines it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::source_files::{
    Module, SourceFile, absolute, branches, declarations, references, source_files,
};

#[test]
fn no_file_imports_itself_through_others() {
    let circles = circles(&Sources::read().imports());
    assert!(circles.is_empty(), "circles:\n{}", circles.join("\n"));
}

#[test]
fn no_room_imports_itself_through_others() {
    let imports = Sources::read().imports();
    let folders = imports
        .keys()
        .flat_map(|module| (0..module.len()).map(|length| &module[..length]));
    let folders: BTreeSet<&[String]> = folders.collect();
    let circles = folders
        .into_iter()
        .flat_map(|folder| circles(&rooms(folder, &imports)));
    let circles: Vec<String> = circles.collect();
    assert!(circles.is_empty(), "circles:\n{}", circles.join("\n"));
}

/// What each room of a folder imports of the others. A room is a file, or a folder with all that is below it.
fn rooms(
    folder: &[String],
    imports: &BTreeMap<Module, BTreeSet<Module>>,
) -> BTreeMap<Module, BTreeSet<Module>> {
    let room_of = |module: &Module| {
        let is_below = module.len() > folder.len() && module.starts_with(folder);
        is_below.then(|| module[..=folder.len()].to_vec())
    };
    let mut rooms: BTreeMap<Module, BTreeSet<Module>> = BTreeMap::new();
    for (module, targets) in imports {
        let Some(room) = room_of(module) else {
            continue;
        };
        let others = targets.iter().filter_map(room_of);
        let others: Vec<Module> = others.filter(|other| *other != room).collect();
        rooms.entry(room).or_default().extend(others);
    }
    rooms
}

/// The shortest circle through each module that is in one.
fn circles(imports: &BTreeMap<Module, BTreeSet<Module>>) -> Vec<String> {
    let circles = imports
        .keys()
        .filter_map(|module| circle_through(module, imports));
    let shown = circles.map(|circle| {
        let names: Vec<String> = circle.iter().map(|module| module.join("::")).collect();
        names.join(" -> ")
    });
    shown.collect()
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

/// The names that a file re-exports, and where each comes from.
fn re_exported(file: &SourceFile) -> BTreeMap<String, Module> {
    let declared = declarations(&file.bare).into_iter();
    let public = declared.filter(|(is_public, _)| *is_public);
    let origins = public.filter_map(|(_, path)| absolute(file, &path));
    let named = origins.filter_map(|origin| Some((origin.last()?.clone(), origin)));
    named.filter(|(name, _)| name != "*").collect()
}

/// What every file names.
struct Sources {
    /// What each file imports for itself.
    uses: BTreeMap<Module, Vec<Module>>,
    /// What each file re-exports: the name, and where it comes from.
    re_exports: BTreeMap<Module, BTreeMap<String, Module>>,
}

impl Sources {
    fn read() -> Self {
        let (mut uses, mut re_exports) = (BTreeMap::new(), BTreeMap::new());
        for file in source_files("") {
            let public = re_exported(file);
            let own = references(file).into_iter();
            let own = own.filter(|path| !public.values().any(|origin| origin == path));
            uses.insert(file.module.clone(), own.collect());
            re_exports.insert(file.module.clone(), public);
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

#[test]
fn a_circle_of_rooms_is_found_though_no_file_is_in_one() {
    let module = |path: &str| -> Module { path.split("::").map(str::to_owned).collect() };
    let imports = BTreeMap::from([
        (module("a::one"), BTreeSet::from([module("b::one")])),
        (module("b::one"), BTreeSet::new()),
        (module("b::two"), BTreeSet::from([module("a::two")])),
        (module("a::two"), BTreeSet::new()),
    ]);
    assert_eq!(circles(&imports), [""; 0]);
    let expected = ["a -> b -> a", "b -> a -> b"];
    assert_eq!(circles(&rooms(&[], &imports)), expected);
}
