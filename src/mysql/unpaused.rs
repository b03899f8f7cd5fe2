//! The scan of overdue tasks that are not paused.

use super::connection::{Statement, covered, statement};
use super::error::error;
use super::queries::{self, padded};
use super::scans::{END, PAGE_ROWS, ms};
use super::{MysqlLedger, decode};
use lapsed_core::ledger::{DuePage, DueScan, LedgerError, Window};
use lapsed_core::task::Paused;

impl MysqlLedger {
    pub(super) async fn unpaused_page(
        &self,
        scan: DueScan,
        paused: &Paused,
    ) -> Result<DuePage, LedgerError> {
        let (by, stretch, rows, from) = match scan.window {
            _ if paused.is_everything() => return Ok(DuePage::default()),
            Window::OverdueOldest(by) => (
                by,
                queries::PAGE_END_OLDEST,
                queries::UNPAUSED_OLDEST,
                Default::default(),
            ),
            Window::OverdueNewest(by) => {
                (by, queries::PAGE_END_NEWEST, queries::UNPAUSED_NEWEST, END)
            }
            Window::Due | Window::Ahead(_) | Window::Deleted { .. } => {
                let mut page = self.scan_page(scan).await?;
                page.rows
                    .retain(|row| paused.blocks(&row.key, row.arming.due).is_none());
                return Ok(page);
            }
        };
        let (after_due, after_row) = scan.after.unwrap_or(from);
        let mut conn = self.pools.acquire().await?;
        let question = covered(self.queries.plain(stretch)).bind(ms(by));
        let question = question.bind(after_due.0).bind(after_due.0).bind(after_row);
        let end = conn
            .fetch(question.bind(PAGE_ROWS - 1))
            .await
            .map_err(error)?;
        let end = decode::places(&end).map_err(error)?.first().copied();
        // The opposite end of all rows.
        let far = match scan.window {
            Window::OverdueNewest(_) => Default::default(),
            _ => END,
        };
        let (end_due, end_row) = end.unwrap_or(far);

        let (names, released) = (listed(paused.names()), listed(paused.released()));
        let question = self.queries.unpaused(rows, names.len(), released.len());
        let question = statement(question).bind(ms(by));
        let question = question.bind(after_due.0).bind(after_due.0).bind(after_row);
        let question = question.bind(end_due.0).bind(end_due.0).bind(end_row);
        let question = bind_twice(question, names);
        let question = question.bind(paused.held_before().unwrap_or_default().0);
        let question = bind_twice(question, released);
        let found = conn.fetch(question.bind(scan.limit)).await.map_err(error)?;
        let page = decode::due_page(&found, scan.limit).map_err(error)?;
        Ok(DuePage {
            next: page.next.or(end),
            ..page
        })
    }
}

/// Returns the names for a list in a statement. A list must not be empty, and no key has an empty class.
fn listed<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let names: Vec<&str> = names.collect();
    match names.is_empty() {
        true => vec![""],
        false => padded(&names),
    }
}

/// Binds a list that occurs twice in the statement.
fn bind_twice(question: Statement<'static>, names: Vec<&str>) -> Statement<'static> {
    let twice = names.iter().chain(&names);
    twice.fold(question, |question, name| question.bind((*name).to_owned()))
}
