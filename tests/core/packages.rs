//! A package can be built without the others' files.

use std::path::{Component, Path, PathBuf};

use regex::Regex;

use crate::source_files::source_files;

#[test]
fn a_package_has_the_files_that_it_includes() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let include = Regex::new(r#"include_(?:str|bytes)!\(\s*"([^"]+)"\s*\)"#).unwrap();
    let (mut found, mut faults) = (0, Vec::new());
    for file in source_files("") {
        let package: PathBuf = file.package.iter().collect();
        let directory = Path::new(&file.path).parent().expect("it is a file");
        for name in include.captures_iter(&file.code) {
            found += 1;
            let included = directory.join(&name[1]);
            let is_within = resolved(&included).is_some_and(|path| path.starts_with(&package));
            if !is_within || !root.join(&included).is_file() {
                faults.push(format!("{}: includes `{}`", file.path, &name[1]));
            }
        }
    }
    assert!(found >= 7, "few files are included: {found}");
    assert!(
        faults.is_empty(),
        "link these files in the directory of their package:\n{}",
        faults.join("\n")
    );
}

/// The path without `..`; `None` if it leaves `src`. Links are not followed: cargo packages what they lead to.
fn resolved(path: &Path) -> Option<PathBuf> {
    let mut resolved = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir if !resolved.pop() => return None,
            Component::ParentDir => {}
            part => resolved.push(part),
        }
    }
    Some(resolved)
}
