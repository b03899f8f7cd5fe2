use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::SandboxError;

const PREFIX: &str = "lapsed-sandbox-";

/// Longest base path: a Unix socket path has at most 107 bytes, and our own names need some of them.
const LONGEST_BASE: usize = 60;

/// The temporary directory of one server: removed on drop, or by the next sandbox if this process is killed.
#[derive(Debug)]
pub(super) struct Home {
    dir: TempDir,
    /// Locked while this process lives, which marks the directory as in use.
    _lock: File,
}

impl Home {
    pub(super) fn new() -> Result<Self, SandboxError> {
        let base = base();
        Self::in_base(&base).map_err(SandboxError::io(|| {
            format!("make a directory in `{}`", base.display())
        }))
    }

    fn in_base(base: &Path) -> io::Result<Self> {
        // Other processes must not clean up between the creation of the directory and its lock.
        let _gate = gate(base, "gate")?;
        sweep(base);
        let dir = tempfile::Builder::new().prefix(PREFIX).tempdir_in(base)?;
        let lock = File::open(dir.path())?;
        lock.try_lock()?;
        Ok(Self { dir, _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        self.dir.path()
    }
}

/// The temporary directory, or `/tmp` when its name is too long for a unix socket below it.
pub(super) fn base() -> PathBuf {
    let base = std::env::temp_dir();
    if base.as_os_str().len() <= LONGEST_BASE {
        base
    } else {
        PathBuf::from("/tmp")
    }
}

/// Waits for a lock that all sandboxes of this user on this machine share. It is released on drop or process exit.
pub(super) fn gate(base: &Path, name: &str) -> io::Result<File> {
    let user = rustix::process::geteuid().as_raw();
    let path = base.join(format!("lapsed-{name}-{user}.lock"));
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)?;
    file.lock()?;
    Ok(file)
}

/// Removes directories that killed processes left behind. Best effort.
fn sweep(base: &Path) {
    let Ok(entries) = fs::read_dir(base) else {
        return;
    };
    for entry in entries.flatten() {
        let ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
        if ours && is_abandoned(&entry.path()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn is_abandoned(dir: &Path) -> bool {
    File::open(dir).is_ok_and(|dir| dir.try_lock().is_ok())
}
