//! Compares lines with a file in `tests/snapshots`, which [`UPDATE`] rewrites.

use std::collections::BTreeSet;
use std::path::Path;

/// Set to anything, it makes the tests write the snapshots instead of comparing them.
pub const UPDATE: &str = "LAPSED_UPDATE_SNAPSHOTS";

/// Each line must read alone: they are sorted, and a failure shows only those that differ.
#[track_caller]
pub fn assert_snapshot(name: &str, lines: impl IntoIterator<Item = String>) {
    let found: BTreeSet<String> = lines.into_iter().collect();
    // Both the package of the library and that of the program compile this file.
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = package
        .ancestors()
        .find(|place| place.join("Cargo.lock").exists());
    let path = root.unwrap().join(format!("tests/snapshots/{name}.txt"));
    if std::env::var_os(UPDATE).is_some() {
        let text: String = found.iter().map(|line| format!("{line}\n")).collect();
        std::fs::write(&path, text).unwrap();
        return;
    }
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    let expected: BTreeSet<String> = text.lines().map(str::to_owned).collect();
    let gone = expected
        .difference(&found)
        .map(|line| (line, format!("- {line}\n")));
    let new = found
        .difference(&expected)
        .map(|line| (line, format!("+ {line}\n")));
    let mut changed: Vec<(&String, String)> = gone.chain(new).collect();
    changed.sort();
    let diff: String = changed.into_iter().map(|(_, line)| line).collect();
    assert!(
        diff.is_empty(),
        "{} differs:\n{diff}If that is intended, run this test again with {UPDATE}=1 and commit the file.",
        path.display()
    );
}
