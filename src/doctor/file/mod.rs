//! Checks of a ledger in an SQLite file: the file, its settings, its file system, and its backlog.

mod judge;

use std::time::Duration;

use super::ledger::access::{DOCUMENTS, WITHOUT_DOCUMENTS};
use super::ledger::backlog::{BACKLOG, BACKLOG_MAX, Backlog, Overdue};
use super::runner::{Runner, words};
use lapsed::Config;
use lapsed::diagnosis::{Finding, Severity, Thresholds};
use lapsed::handler::{Handlers, Router};
use lapsed::ledger::sqlite::{NEWER, SqliteLedger};
use lapsed::ledger::{
    Admin as _, Collection, Documents as _, DueScan, Ledger as _, LedgerError, Pauses as _,
    Scans as _, Window,
};
use lapsed::task::Paused;
use lapsed_core::format::count;

const REACHABLE: &str = "ledger.reachable";
const INTEGRITY: &str = "ledger.integrity";

/// Checks the file.
pub(super) async fn examine(config: &Config, runner: &mut Runner) {
    let ledger = match SqliteLedger::new(&config.ledger) {
        Ok(ledger) => ledger,
        Err(problem) => {
            let finding = Finding::error(REACHABLE, words(&problem));
            runner.add([finding.remedy("correct `[ledger]` in the configuration")]);
            return;
        }
    };
    examine_file(config, &ledger, runner).await;
    // Bounded, since a connection may be stuck.
    let _ = runner.bounded(ledger.close()).await;
}

async fn examine_file(config: &Config, ledger: &SqliteLedger, runner: &mut Runner) {
    let facts = match runner.bounded(ledger.facts()).await {
        Some(Ok(facts)) => facts,
        Some(Err(error)) => return runner.add([unusable(&error)]),
        None => {
            let finding = Finding::error(REACHABLE, "the file did not answer in time");
            let remedy = "look whether its file system hangs, or another process keeps it locked";
            return runner.add([finding.remedy(remedy)]);
        }
    };
    runner.add([Finding::ok(REACHABLE, config.ledger.url.to_string())]);
    runner.add(judge::judge(&facts));
    let integrity = match runner.bounded(ledger.quick_check()).await {
        Some(Ok(None)) => Finding::ok(INTEGRITY, "every page is sound"),
        Some(Ok(Some(problem))) => Finding::error(INTEGRITY, problem)
            .remedy("stop the daemon, keep a copy of the files, and restore the latest backup"),
        Some(Err(error)) => Finding::unknown(INTEGRITY, words(&error)),
        None => Finding::note(
            INTEGRITY,
            "no damage found within 5 s; the rest of the file was not checked",
        ),
    };
    runner.add([integrity]);
    let read = ledger.find_document(Collection::Audit, "doctor");
    let documents = match runner.bounded(read).await {
        Some(Ok(_)) => Finding::ok(DOCUMENTS, "the audit log and the history can be written"),
        Some(Err(error)) => {
            Finding::warning(DOCUMENTS, format!("{}: {WITHOUT_DOCUMENTS}", words(&error)))
                .remedy("run `lapsed migrate`, which creates the table of documents")
        }
        None => Finding::unknown(DOCUMENTS, "it took too long"),
    };
    runner.add([documents]);
    let backlog = async {
        let counts = ledger.stats().await?;
        let paused = Paused::of(&ledger.pauses().await?);
        let overdue = DueScan {
            window: Window::OverdueOldest(Duration::ZERO),
            after: None,
            limit: BACKLOG_MAX + 1,
        };
        let rows = match counts.overdue {
            0 => Vec::new(),
            _ => ledger.scan(overdue).await?.rows,
        };
        let now = ledger.clock().now();
        let tasks = rows.into_iter().map(|row| Overdue {
            key: row.key,
            due: row.arming.due,
            waited: now.since(row.due_at),
        });
        let tasks: Vec<Overdue> = tasks.collect();
        Ok::<_, LedgerError>((counts, paused, tasks))
    };
    let backlog = match runner.bounded(backlog).await {
        Some(Ok((counts, _, tasks))) if tasks.is_empty() => {
            let pending = match counts.pending {
                1 => "1 task is pending".to_owned(),
                tasks => format!("{} tasks are pending", count(tasks)),
            };
            Finding::ok(BACKLOG, format!("{pending}, none is overdue"))
        }
        Some(Ok((_, paused, tasks))) => {
            let router = Router::new(Handlers::new(), config);
            let thresholds = Thresholds::from(&config.alerts);
            let finding = Backlog::of(&tasks, &router, &paused).judge(&thresholds);
            match finding.severity {
                Severity::Note => finding
                    .remedy("look whether a daemon runs, and whether `lapsed pauses` lists them"),
                _ => finding,
            }
        }
        Some(Err(error)) => Finding::unknown(BACKLOG, words(&error)),
        None => Finding::unknown(BACKLOG, "it took too long"),
    };
    runner.add([backlog]);
}

fn unusable(error: &LedgerError) -> Finding {
    let remedy = match error {
        LedgerError::Unavailable { .. } => {
            "find the process that keeps the file locked, or look at the disk"
        }
        // The only remedy that keeps the tasks.
        LedgerError::Refused { message, .. } if message.contains(NEWER) => {
            "install that version of lapsed"
        }
        _ => {
            "create the table with `lapsed migrate`, or correct `ledger.url` and the rights of this user on the file and its directory"
        }
    };
    Finding::error(REACHABLE, words(error)).remedy(remedy)
}
