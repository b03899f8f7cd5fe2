//! Names of backups.

use crate::support::program::{lapsed, said};

#[test]
fn a_backup_may_have_any_name() {
    let directory = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| {
        let mut command = lapsed();
        command.current_dir(directory.path()).args(args);
        command.env("LAPSED__LEDGER__URL", "sqlite://lapsed.db");
        said(command.output().unwrap())
    };
    assert_eq!(run(&["migrate"]).0, 0);
    // SQLite would take the name for a URI.
    for name in ["file:copy.db?mode=memory", "file:copy.db", "copy.db"] {
        let (code, stdout, stderr) = run(&["backup", name]);
        assert_eq!(code, 0, "{name}: {stderr}");
        assert!(stdout.contains(&format!("`{name}` has 0 rows")), "{stdout}");
        assert!(directory.path().join(name).metadata().unwrap().len() > 0);
    }
    let (code, _, stderr) = run(&["backup", "copy.db"]);
    assert_eq!(code, 1);
    assert!(stderr.contains("`copy.db` exists already"), "{stderr}");
}
