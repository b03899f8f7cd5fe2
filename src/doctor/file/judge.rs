//! Judges the facts of a file.

use lapsed::diagnosis::Finding;
use lapsed::ledger::sqlite::FileFacts;
use lapsed_core::format::bytes;

const VERSION: &str = "ledger.version";
const DURABILITY: &str = "ledger.durability";
const RIGHTS: &str = "ledger.rights";
const SPACE: &str = "ledger.space";
const WAL: &str = "ledger.wal";
const FILE_SYSTEM: &str = "ledger.file_system";

/// `synchronous` is `FULL`.
const FULL: i64 = 2;

/// Least free space that is no warning.
const SPACE_MIN: u64 = 1 << 30;

/// Size up to which the write-ahead log is usual: it is cut to this when it starts over.
const WAL_MAX: u64 = 64 << 20;

pub(super) fn judge(facts: &FileFacts) -> Vec<Finding> {
    vec![
        Finding::ok(VERSION, format!("SQLite {}", facts.version)),
        durability(facts),
        file_system(facts),
        rights(facts),
        space(facts),
        wal(facts),
    ]
}

fn durability(facts: &FileFacts) -> Finding {
    match (facts.journal_mode.as_str(), facts.synchronous) {
        ("wal", FULL..) => Finding::ok(
            DURABILITY,
            "journal mode `wal`, synchronous `FULL`: what is acknowledged survives a power failure",
        ),
        (mode, synchronous) => Finding::error(
            DURABILITY,
            format!("journal mode `{mode}`, synchronous {synchronous}, expected `wal` and 2"),
        )
        .remedy("close the programs that have set another journal mode, then start the daemon"),
    }
}

fn file_system(facts: &FileFacts) -> Finding {
    match facts.network {
        None => Finding::ok(FILE_SYSTEM, "local"),
        Some(name) => Finding::error(
            FILE_SYSTEM,
            format!("{name}: processes of two machines that open the file damage it"),
        )
        .remedy("move the file to a local disk, or use MySQL"),
    }
}

fn rights(facts: &FileFacts) -> Finding {
    let found = format!(
        "file {:04o}, directory {:04o}",
        facts.mode, facts.directory_mode
    );
    match () {
        () if facts.mode & 0o077 != 0 => Finding::warning(
            RIGHTS,
            format!("{found}: other users can read the payloads"),
        )
        .remedy("`chmod 600` the file and those beside it, unless an application under another user needs them"),
        () if facts.directory_mode & 0o002 != 0 => {
            Finding::warning(RIGHTS, format!("{found}: any user can replace the file"))
                .remedy("put the file into a directory that only the user of the daemon can write")
        }
        () => Finding::ok(RIGHTS, found),
    }
}

fn space(facts: &FileFacts) -> Finding {
    let found = format!(
        "the database has {}, of which {} are unused; {} are free on the disk",
        bytes(facts.bytes),
        bytes(facts.bytes_unused),
        bytes(facts.space_bytes)
    );
    if facts.space_bytes >= SPACE_MIN.max(facts.bytes / 4) {
        return Finding::ok(SPACE, found);
    }
    Finding::warning(SPACE, found)
        .remedy("make room: without space no task can be created or settled; `lapsed prune` makes room in the file, for further tasks")
}

fn wal(facts: &FileFacts) -> Finding {
    let found = format!("the write-ahead log has {}", bytes(facts.wal_bytes));
    if facts.wal_bytes <= WAL_MAX {
        return Finding::ok(WAL, found);
    }
    Finding::warning(
        WAL,
        format!("{found}: a connection has been reading for long"),
    )
    .remedy(
        "end transactions of other programs that stay open: while one reads, the log only grows",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assertions::assert_is;
    use lapsed::diagnosis::Severity;

    fn sound() -> FileFacts {
        FileFacts {
            version: "3.51.3",
            journal_mode: "wal".into(),
            synchronous: FULL,
            mode: 0o600,
            directory_mode: 0o755,
            bytes: 100 << 20,
            bytes_unused: 0,
            wal_bytes: 4 << 20,
            space_bytes: 50 << 30,
            network: None,
        }
    }

    #[test]
    fn a_sound_file_has_no_bad_finding() {
        for finding in judge(&sound()) {
            assert_eq!(finding.severity, Severity::Ok, "{finding:?}");
        }
    }

    #[test]
    fn each_fact_that_is_wrong_is_found() {
        let facts = sound();
        let cases = [
            (
                FileFacts {
                    journal_mode: "delete".into(),
                    ..facts.clone()
                },
                Severity::Error,
                "`delete`",
            ),
            (
                FileFacts {
                    synchronous: 1,
                    ..facts.clone()
                },
                Severity::Error,
                "synchronous 1",
            ),
            (
                FileFacts {
                    network: Some("NFS"),
                    ..facts.clone()
                },
                Severity::Error,
                "NFS",
            ),
            (
                FileFacts {
                    mode: 0o644,
                    ..facts.clone()
                },
                Severity::Warning,
                "file 0644",
            ),
            (
                FileFacts {
                    directory_mode: 0o777,
                    ..facts.clone()
                },
                Severity::Warning,
                "directory 0777",
            ),
            (
                FileFacts {
                    space_bytes: 100 << 20,
                    ..facts.clone()
                },
                Severity::Warning,
                "100 MiB are free",
            ),
            (
                FileFacts {
                    bytes: 900 << 30,
                    ..facts.clone()
                },
                Severity::Warning,
                "900 GiB",
            ),
            (
                FileFacts {
                    wal_bytes: 1 << 30,
                    ..facts
                },
                Severity::Warning,
                "1 GiB",
            ),
        ];
        for (facts, severity, part) in cases {
            let bad: Vec<Finding> = judge(&facts)
                .into_iter()
                .filter(|finding| finding.severity != Severity::Ok)
                .collect();
            assert_eq!(bad.len(), 1, "{bad:?}");
            assert_is(&bad[0], severity, part);
        }
    }
}
