//! What a row shows, and which filters it fits.

use super::*;
use crate::ledger::{ListFilter, Progress, Renewal};

#[test]
fn a_span_of_a_filter_includes_its_start_and_not_its_end() {
    let mut row = claimed(row(-5), NOW);
    row.finish(Status::Processed, ms(10));
    let fits = |filter: ListFilter| row.fits(&filter, ms(20));
    for (ahead, from, to) in [(-1, true, false), (0, true, false), (1, false, true)] {
        let [due, finished, created] = [-5, 10, -60_000].map(|of| Some(ms(of + ahead)));
        let filter = ListFilter::default;
        let spans = [
            (
                "due after",
                from,
                ListFilter {
                    due_after: due,
                    ..filter()
                },
            ),
            (
                "due before",
                to,
                ListFilter {
                    due_before: due,
                    ..filter()
                },
            ),
            (
                "finished after",
                from,
                ListFilter {
                    finished_after: finished,
                    ..filter()
                },
            ),
            (
                "finished before",
                to,
                ListFilter {
                    finished_before: finished,
                    ..filter()
                },
            ),
            (
                "created before",
                to,
                ListFilter {
                    created_before: created,
                    ..filter()
                },
            ),
        ];
        for (what, expected, filter) in spans {
            assert_eq!(fits(filter), expected, "{what}, {ahead} ms");
        }
    }
}

#[test]
fn a_record_has_the_crashes_and_the_lease_of_the_present_run_alone() {
    let mut row = claimed(claimed(row(-5), NOW), ms(40_000));
    let shown = |row: &Row, ahead| {
        let record = row.record(ms(ahead));
        (record.attempt, record.crashes, record.lease_until)
    };
    assert_eq!(shown(&row, 41_000), (2, 1, Some(ms(70_000))));
    assert_eq!(shown(&row, 70_001), (2, 1, None), "the lease is over");
    row.create_over(&task(60_000), ms(41_000));
    assert_eq!(
        shown(&row, 41_000),
        (0, 0, Some(ms(70_000))),
        "a new arming"
    );
}

#[test]
fn a_run_is_interrupted_when_its_lease_is_over() {
    let row = claimed(row(-5), NOW);
    let is_interrupted = |row: &Row, ahead| row.lookup(ms(ahead)).interrupted;
    assert!(!is_interrupted(&row, 30_000));
    assert!(is_interrupted(&row, 30_001));
    let mut anew = row.clone();
    anew.create_over(&task(60_000), NOW);
    assert!(!is_interrupted(&anew, 30_001), "an older arming ran");
    let mut reported = row;
    reported.lease_until = super::super::NEVER;
    assert!(!is_interrupted(&reported, 30_001), "it has ended");
}

#[test]
fn a_row_whose_lease_is_over_is_deleted_and_no_longer_cancelling() {
    let mut row = claimed(row(-5), NOW);
    row.cancel(NOW);
    let shown = |ahead| {
        let seen = row.lookup(ms(ahead));
        (seen.deleted, seen.cancelling)
    };
    assert_eq!(shown(30_000), (false, true));
    assert_eq!(shown(30_001), (true, false));
}

#[test]
fn the_progress_that_a_claim_reports_is_shown_while_its_run_lasts() {
    let mut row = claimed(row(-5), NOW);
    let half = Progress::new(50, "half").unwrap();
    let lost = row.report(Owner([8; 16]), &half, LEASE, ms(5));
    assert_eq!((lost, row.progress.as_deref()), (Renewal::Lost, None));
    let held = row.report(OWNER, &half, LEASE, ms(5));
    assert_eq!((held, row.lease_until), (Renewal::Held, ms(30_005)));
    let shown = |row: &Row, ahead| {
        let record = row.record(ms(ahead));
        (record.progress, record.started)
    };
    assert_eq!(shown(&row, 30_005), (Some(half), Some(NOW)));
    assert_eq!(shown(&row, 30_006), (None, None), "its lease is over");
    let mut again = claimed(row, ms(40_000));
    again.owner = Some(Owner([8; 16]));
    let by_another = (None, Some(ms(40_000)));
    assert_eq!(shown(&again, 40_001), by_another, "of an earlier claim");
}
