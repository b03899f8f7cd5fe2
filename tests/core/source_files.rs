//! The source files of all packages, without their unit tests.

use std::path::Path;

/// The path of a module: the names of the folders from `src` to it.
pub type Module = Vec<String>;

/// A source file.
pub struct SourceFile {
    /// Path below `src`.
    pub path: String,
    pub module: Module,
    /// The text up to its unit tests.
    pub code: String,
}

/// The files below a directory of `src`, or one file.
pub fn source_files(below: &str) -> Vec<SourceFile> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut files, mut places) = (Vec::new(), vec![root.join(below)]);
    while let Some(place) = places.pop() {
        if place.is_dir() {
            let entries = std::fs::read_dir(&place).unwrap();
            places.extend(entries.map(|entry| entry.unwrap().path()));
        } else if place.extension().is_some_and(|end| end == "rs") && !place.ends_with("tests.rs") {
            let path = place.strip_prefix(&root).expect("listed below it");
            let text = std::fs::read_to_string(&place).unwrap();
            let code = text.split("#[cfg(test)]").next().unwrap_or_default();
            files.push(SourceFile {
                path: path.to_string_lossy().into_owned(),
                module: module_of(path),
                code: code.to_owned(),
            });
        }
    }
    assert!(!files.is_empty(), "`{below}` is not there");
    files
}

fn module_of(path: &Path) -> Module {
    let names = path.with_extension("");
    let names = names.iter().map(|name| name.to_string_lossy().into_owned());
    let mut module: Module = names.collect();
    if module
        .last()
        .is_some_and(|name| name == "mod" || name == "lib")
    {
        module.pop();
    }
    module
}

/// The root of the package that a module belongs to: a member of the workspace has a folder of its own below `src`.
pub fn package_of(module: &[String]) -> Module {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let is_member = |name: &&String| root.join(name).join("Cargo.toml").exists();
    module
        .first()
        .filter(is_member)
        .cloned()
        .into_iter()
        .collect()
}
