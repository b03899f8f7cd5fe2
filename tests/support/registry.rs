//! Packages from the registries of npm and PyPI, installed once below `target`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

/// A copy of a directory with a `package.json`, in which `npm install` has run.
pub fn npm(source: &Path) -> PathBuf {
    installed(source, |home| {
        let mut npm = Command::new("npm");
        npm.args([
            "install",
            "--no-package-lock",
            "--omit=optional",
            "--ignore-scripts",
            "--no-audit",
            "--no-fund",
        ]);
        npm.current_dir(home);
        npm
    })
}

/// A copy of a directory with a `requirements.txt`. Its packages are in the directory `packages` below it.
pub fn pip(source: &Path) -> PathBuf {
    installed(source, |home| {
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "install", "--quiet"]);
        pip.args(["--disable-pip-version-check", "--no-compile"]);
        pip.args(["--target", "packages", "--requirement", "requirements.txt"]);
        pip.current_dir(home);
        pip
    })
}

/// Copies the files of `source`, runs a command in the copy, and returns it. Later calls find it, until a file changes.
fn installed(source: &Path, command: impl FnOnce(&Path) -> Command) -> PathBuf {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock();
    let mut files: Vec<(PathBuf, Vec<u8>)> = std::fs::read_dir(source)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), std::fs::read(path).unwrap()))
        .collect();
    files.sort();
    let bytes = files.iter().flat_map(|(_, text)| text);
    let mark = bytes.fold(0u64, |hash, byte| {
        hash.wrapping_mul(31).wrapping_add((*byte).into())
    });
    let name = source.file_name().unwrap().to_str().unwrap();
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let home = target.join(format!("{name}-{mark:016x}"));
    if home.exists() {
        return home;
    }
    // Complete, or not there: another run of the tests may be installing it as well.
    let fresh = tempfile::tempdir_in(target).unwrap().keep();
    for (path, text) in &files {
        std::fs::write(fresh.join(path.file_name().unwrap()), text).unwrap();
    }
    let mut command = command(&fresh);
    let program = command.get_program().to_owned();
    let output = command
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| {
            panic!("{program:?}: {error}; run `scripts/install-servers --tests`")
        });
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{program:?} could not install the packages of {source:?}: {errors}"
    );
    if std::fs::rename(&fresh, &home).is_err() {
        assert!(home.exists(), "cannot rename {fresh:?}");
        let _ = std::fs::remove_dir_all(&fresh);
    }
    home
}
