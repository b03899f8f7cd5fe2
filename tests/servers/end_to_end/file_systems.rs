//! A ledger on a file system that is full, and on one that is read-only.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use crate::support::not_tried::not_tried;
use crate::support::program::{lapsed, said};

/// Runs a shell script in which `$DIR` is a file system of 24 MB of its own, and `lapsed` the program on a file in it.
/// `None`: this machine lets nobody mount one.
fn on_a_small_file_system(test: &str, script: &str) -> Option<(i32, String, String)> {
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().display();
    let mount = format!("mount -t tmpfs -o size=24m none {directory}");
    let setup = format!(
        "set -eu\n{mount}\nDIR={directory}\nPROGRAM={}\nlapsed() {{ $PROGRAM \"$@\"; }}\n\
         export LAPSED__LEDGER__URL=sqlite://$DIR/lapsed.db LAPSED__HTTP__LISTEN=\n{script}",
        lapsed().get_program().display()
    );
    let as_user: &[&str] = &["--user", "--map-root-user"];
    for rights in [&[], as_user] {
        let unshare = |script: &str| {
            let mut command = Command::new("unshare");
            command.args(rights).args(["--mount", "sh", "-c", script]);
            for (name, _) in lapsed().get_envs() {
                command.env_remove(name);
            }
            command.output()
        };
        if unshare(&mount).is_ok_and(|output| output.status.success()) {
            return Some(said(unshare(&setup).unwrap()));
        }
    }
    not_tried(test, "this machine mounts no file system for it");
    None
}

/// Lines of `lapsed schedule --file`, each with a payload of 2 KB.
fn lines(directory: &Path, name: &str, count: u32) -> String {
    let mut lines = String::new();
    for number in 0..count {
        let (key, payload) = (format!("Job@run@{name}{number}"), "x".repeat(2_000));
        let line = format!(r#"{{"key": "{key}", "in": "1h", "payload": "{payload}"}}"#);
        writeln!(lines, "{line}").unwrap();
    }
    let path = directory.join(name);
    std::fs::write(&path, lines).unwrap();
    path.display().to_string()
}

#[test]
fn a_full_disk_refuses_tasks_loses_none_and_is_used_again_when_there_is_room() {
    let place = tempfile::tempdir().unwrap();
    let file = |name: &str, count| lines(place.path(), name, count);
    let (first, many, last) = (file("first", 50), file("many", 8_000), file("last", 50));
    let script = format!(
        "head -c 16000000 /dev/zero > $DIR/other\n\
         lapsed migrate\n\
         lapsed schedule --file {first}\n\
         if lapsed schedule --file {many}; then echo 'all of it fits'; exit 9; fi\n\
         rm $DIR/other\n\
         lapsed schedule --file {last}\n\
         lapsed show Job@run@first49 --json\n\
         lapsed show Job@run@last49 --json\n\
         lapsed doctor --json\n"
    );
    let test = "a_full_disk_refuses_tasks_loses_none_and_is_used_again_when_there_is_room";
    let Some((code, stdout, stderr)) = on_a_small_file_system(test, &script) else {
        return;
    };
    assert_eq!(code, 0, "{stdout}\n{stderr}");
    assert!(stderr.contains("no space left for `"), "{stderr}");
    for name in ["first49", "last49"] {
        assert!(stdout.contains(&format!("Job@run@{name}")), "{stdout}");
    }
    assert_eq!(stdout.matches("50 scheduled, 0 refused").count(), 2);
}

/// Each commit takes some pages of the log, which takes far more space than the tasks in it until it is copied: here more
/// than there is.
#[test]
fn a_log_is_copied_before_it_fills_the_disk() {
    let script = "head -c 21000000 /dev/zero > $DIR/other
        cd $DIR
        $PROGRAM dev --file $DIR/lapsed.db --resp 127.0.0.1:0 --http 127.0.0.1:0 > $DIR/out 2>&1 &
        daemon=$!
        trap 'kill $daemon' EXIT
        until grep -q 'redis-cli -p' $DIR/out; do kill -0 $daemon; done
        port=$(sed -n 's/.*redis-cli -p \\([0-9]*\\) SETEX.*/\\1/p' $DIR/out)
        for number in $(seq 400); do redis-cli -p $port SETEX Job@run@$number 3600 x; done
        redis-cli -p $port DBSIZE
        ";
    let test = "a_log_is_copied_before_it_fills_the_disk";
    let Some((code, stdout, stderr)) = on_a_small_file_system(test, script) else {
        return;
    };
    assert_eq!(code, 0, "{stdout}\n{stderr}");
    let count = |answer: &str| stdout.lines().filter(|line| line.contains(answer)).count();
    assert_eq!(count("OK"), 400, "{stdout}\n{stderr}");
    assert_eq!(stdout.lines().last(), Some("400"), "{stdout}");
}

#[test]
fn a_file_system_that_is_read_only_is_named() {
    let place = tempfile::tempdir().unwrap();
    let first = lines(place.path(), "first", 5);
    let script = format!(
        "lapsed migrate\nlapsed schedule --file {first}\nmount -o remount,ro $DIR\n\
         if lapsed schedule Job@run --in 1h; then exit 9; fi\n\
         if lapsed listen; then exit 9; fi\n\
         mount -o remount,rw $DIR\nlapsed schedule Job@run --in 1h\n"
    );
    let test = "a_file_system_that_is_read_only_is_named";
    let Some((code, stdout, stderr)) = on_a_small_file_system(test, &script) else {
        return;
    };
    assert_eq!(code, 0, "{stdout}\n{stderr}");
    let errors: Vec<&str> = stderr
        .lines()
        .filter(|line| line.starts_with("error: "))
        .collect();
    assert_eq!(errors.len(), 2, "{stderr}");
    for error in errors {
        assert!(error.contains("lapsed.db"), "{stderr}");
        assert!(
            error.contains("read-only") || error.contains("Read-only"),
            "{stderr}"
        );
    }
}

/// SQLite begins transactions on such a file, and fails at the first write.
#[test]
fn a_daemon_does_not_start_on_a_file_that_is_read_only_in_a_directory_that_is_not() {
    let script = "lapsed migrate\nmount --bind $DIR/lapsed.db $DIR/lapsed.db\n\
        mount -o remount,ro,bind $DIR/lapsed.db\n\
        code=0; timeout 60 $PROGRAM listen || code=$?\n\
        lapsed list\numount $DIR/lapsed.db\nexit $code\n";
    let test = "a_daemon_does_not_start_on_a_file_that_is_read_only_in_a_directory_that_is_not";
    let Some((code, stdout, stderr)) = on_a_small_file_system(test, script) else {
        return;
    };
    assert_eq!(code, 1, "{stdout}\n{stderr}");
    assert!(
        stderr.contains("lapsed.db` is read-only for this user"),
        "{stderr}"
    );
}
