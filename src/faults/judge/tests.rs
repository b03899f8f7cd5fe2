//! A forged history for each anomaly, and the same without it.

use super::excuses::{LATE_MS_MAX, START_MS_MAX};
use super::*;
use crate::history::{Ended, Hits, Left, Ms, Op, Row, Source, Step, Story, Window};

const KEY: &str = "Hook@ok@1";
const DUE: Ms = 100_000;

fn op(at: Ms, step: Step) -> Op {
    Op {
        asked: at - 5,
        answered: Some(at),
        step,
    }
}

fn arm(at: Ms, due: Ms) -> Op {
    op(at, Step::Arm { due, busy: false })
}

fn run(number: u64, due: Ms, started: Ms) -> Run {
    Run {
        number,
        daemon: 0,
        key: KEY.to_owned(),
        due,
        started,
        ended: Ended::Done,
        fenced: false,
    }
}

fn row(due: Ms, left: Left, result: Option<u64>) -> Row {
    Row {
        due,
        left,
        is_poison: false,
        result,
    }
}

fn window(from: Ms, to: Ms, hits: Hits) -> Window {
    Window {
        name: "forged".to_owned(),
        from,
        to,
        hits,
    }
}

/// One key with these operations and runs, and its row.
fn history(source: Source, ops: Vec<Op>, runs: Vec<Run>, row: Option<Row>) -> History {
    let story = Story {
        source,
        ops,
        wrong: Vec::new(),
    };
    History {
        keys: [(KEY.to_owned(), story)].into(),
        runs,
        windows: Vec::new(),
        rows: row.into_iter().map(|row| (KEY.to_owned(), row)).collect(),
        lease_ms: 6_000,
    }
}

/// Armed, run and done.
fn good() -> History {
    let runs = vec![run(1, DUE, DUE + 3)];
    let row = row(DUE, Left::Done, Some(1));
    history(Source::Client, vec![arm(90_000, DUE)], runs, Some(row))
}

fn found(history: &History) -> Vec<Anomaly> {
    let verdict = judge(history);
    verdict.anomalies.iter().map(|(it, _)| *it).collect()
}

#[test]
fn a_history_that_keeps_the_promises_has_no_anomaly() {
    let verdict = judge(&good());
    assert!(verdict.anomalies.is_empty(), "{:?}", verdict.anomalies);
    assert_eq!(verdict.late_ms, [(DUE, 3)]);
    assert_eq!((verdict.counts.armings, verdict.counts.runs), (1, 1));
}

#[test]
fn a_done_task_without_a_run_is_lost() {
    let mut history = good();
    history.runs.clear();
    history.rows.get_mut(KEY).unwrap().result = None;
    assert_eq!(found(&history), [Anomaly::Lost]);
    history.rows.get_mut(KEY).unwrap().left = Left::Cancelled;
    assert_eq!(found(&history), [Anomaly::Lost], "nobody cancelled it");
}

#[test]
fn a_dead_task_is_lost_unless_it_crashed_three_times() {
    let mut history = good();
    history.runs[0].ended = Ended::Failed;
    let row = row(DUE, Left::Dead, None);
    history.rows.insert(KEY.to_owned(), row);
    assert_eq!(found(&history), [Anomaly::Lost]);
    history.rows.get_mut(KEY).unwrap().is_poison = true;
    assert_eq!(found(&history), []);
}

#[test]
fn a_run_before_its_due_time_is_early() {
    let mut history = good();
    history.runs[0].started = DUE - 1;
    assert_eq!(found(&history), [Anomaly::Early]);
}

#[test]
fn a_run_is_late_unless_a_fault_of_the_ledger_or_a_daemon_delays_it() {
    let mut history = good();
    history.runs[0].started = DUE + LATE_MS_MAX + START_MS_MAX + 1;
    assert_eq!(found(&history), [Anomaly::Late]);
    history.windows = vec![window(DUE - 1_000, DUE + 9_000, Hits::Redis)];
    assert_eq!(found(&history), [Anomaly::Late], "Redis is no excuse");
    for hits in [
        Hits::Ledger(None),
        Hits::Ledger(Some(0)),
        Hits::Daemon(None),
        Hits::Daemon(Some(2)),
        Hits::Targets,
        Hits::Machine,
    ] {
        history.windows = vec![window(DUE - 1_000, DUE + 3_000, hits)];
        assert_eq!(found(&history), [], "{hits:?}");
        history.windows = vec![window(DUE - 40_000, DUE - 30_000, hits)];
        assert_eq!(found(&history), [Anomaly::Late], "{hits:?} is long over");
    }
    history.windows = vec![window(DUE - 9_000, DUE + 3_000, Hits::Daemon(Some(2)))];
    let others = "it is dead for long, and others are not";
    assert_eq!(found(&history), [Anomaly::Late], "{others}");
}

#[test]
fn a_task_that_is_armed_during_its_run_is_late_from_the_end_of_that_run() {
    const SLOW: &str = "Hook@slow@1";
    let ends = DUE + 8_000;
    let started = |second| {
        let again = op(
            DUE + 100,
            Step::Arm {
                due: DUE + 900,
                busy: true,
            },
        );
        let runs = vec![run(1, DUE, DUE), run(2, DUE + 900, second)];
        let row = row(DUE + 900, Left::Done, Some(2));
        let mut history = history(
            Source::Client,
            vec![arm(90_000, DUE), again],
            runs,
            Some(row),
        );
        history.keys = history
            .keys
            .into_values()
            .map(|it| (SLOW.into(), it))
            .collect();
        history.rows = history
            .rows
            .into_values()
            .map(|it| (SLOW.into(), it))
            .collect();
        history
            .runs
            .iter_mut()
            .for_each(|run| run.key = SLOW.into());
        history
    };
    assert_eq!(found(&started(ends + 30)), []);
    let late = ends + LATE_MS_MAX + START_MS_MAX + 1;
    assert_eq!(found(&started(late)), [Anomaly::Late]);
    let mut kept = started(late);
    kept.windows = vec![window(DUE + 1, ends + 500, Hits::Worker(0))];
    assert_eq!(found(&kept), [], "a worker keeps it");
}

#[test]
fn a_second_run_is_doubled_unless_the_first_failed_or_was_interrupted() {
    let mut history = good();
    history.runs.push(run(2, DUE, DUE + 500));
    history.rows.get_mut(KEY).unwrap().result = Some(2);
    assert_eq!(found(&history), [Anomaly::Doubled]);
    history.windows = vec![window(DUE, DUE + 100, Hits::Daemon(Some(1)))];
    assert_eq!(found(&history), [Anomaly::Doubled], "it ran elsewhere");
    history.windows = vec![window(DUE, DUE + 100, Hits::Redis)];
    assert_eq!(found(&history), [Anomaly::Doubled], "Redis interrupts none");
    history.windows = vec![window(DUE, DUE + 100, Hits::Daemon(Some(0)))];
    let verdict = judge(&history);
    assert_eq!(
        (verdict.anomalies.len(), verdict.counts.repeated),
        (0, 1),
        "the daemon died"
    );
    history.windows.clear();
    history.runs[0].ended = Ended::Failed;
    assert_eq!(found(&history), []);
}

#[test]
fn a_run_after_an_acknowledged_cancellation_is_found() {
    let cancel = |busy| op(DUE - 100, Step::Cancel { busy });
    let ops = vec![arm(90_000, DUE), cancel(false)];
    let cancelled = row(DUE, Left::Cancelled, None);
    let mut history = history(Source::Client, ops, Vec::new(), Some(cancelled));
    assert_eq!(found(&history), []);
    history.runs = vec![run(1, DUE, DUE + 3)];
    assert_eq!(found(&history), [Anomaly::RanAfterCancel]);
    // The answer was that it runs: it had been claimed, and begins once.
    history.keys.get_mut(KEY).unwrap().ops[1] = cancel(true);
    assert_eq!(found(&history), []);
    history.runs.push(run(2, DUE, DUE + 300));
    history.runs[0].ended = Ended::Failed;
    assert_eq!(found(&history), [Anomaly::RanAfterCancel]);
}

#[test]
fn a_run_for_an_older_arming_is_found() {
    let ops = vec![arm(90_000, DUE), arm(DUE - 100, DUE + 5_000)];
    let runs = vec![run(1, DUE, DUE + 3), run(2, DUE + 5_000, DUE + 5_001)];
    let done = row(DUE + 5_000, Left::Done, Some(2));
    let mut history = history(Source::Client, ops, runs, Some(done));
    assert_eq!(found(&history), [Anomaly::RanForOlderArming]);
    // Frozen between the claim and the start.
    history.windows = vec![window(DUE - 500, DUE, Hits::Daemon(Some(0)))];
    assert_eq!(found(&history), []);
    history.windows.clear();
    history.runs[0].started = DUE - 150;
    history.runs[0].due = DUE - 200;
    let nobody = [Anomaly::Unrequested];
    assert_eq!(
        found(&history),
        nobody,
        "a due time that was never asked for"
    );
}

#[test]
fn a_run_that_nobody_asked_for_is_found() {
    let mut history = good();
    history.keys.clear();
    assert_eq!(found(&history), [Anomaly::Unrequested]);
}

#[test]
fn what_is_acknowledged_must_be_in_the_ledger() {
    let missing = [Anomaly::AcknowledgedBeforeDurable];
    let ops = || vec![arm(90_000, DUE)];
    assert_eq!(
        found(&history(Source::Sql, ops(), Vec::new(), None)),
        missing
    );
    // An older arming is left.
    let older = row(DUE - 7_000, Left::Done, None);
    let older = history(Source::Client, ops(), Vec::new(), Some(older));
    assert_eq!(found(&older), missing);
    let mut cancelled = ops();
    cancelled.push(op(95_000, Step::Cancel { busy: false }));
    let pending = row(DUE, Left::Pending, None);
    let cancelled = history(Source::Client, cancelled, Vec::new(), Some(pending));
    assert_eq!(found(&cancelled), missing);
}

#[test]
fn a_key_of_plain_redis_must_be_adopted_unless_a_fault_hides_it() {
    let mut history = history(Source::Redis, vec![arm(90_000, DUE)], Vec::new(), None);
    assert_eq!(found(&history), [Anomaly::AcknowledgedBeforeDurable]);
    history.windows = vec![window(92_000, 93_000, Hits::Redis)];
    let verdict = judge(&history);
    assert_eq!((verdict.anomalies.len(), verdict.counts.unpromised), (0, 1));
    history.windows = vec![window(9_000, 10_000, Hits::Redis)];
    let long_over = [Anomaly::AcknowledgedBeforeDurable];
    assert_eq!(found(&history), long_over);
}

#[test]
fn the_result_of_a_fenced_run_or_of_another_arming_is_found() {
    let mut history = good();
    history.runs[0].fenced = true;
    assert_eq!(found(&history), [Anomaly::FencedResultApplied]);
    let mut history = good();
    history.rows.get_mut(KEY).unwrap().result = Some(7);
    let unknown = [Anomaly::FencedResultApplied];
    assert_eq!(found(&history), unknown, "no run has it");
}

#[test]
fn an_answer_that_contradicts_an_earlier_one_is_found() {
    let mut history = good();
    let story = history.keys.get_mut(KEY).unwrap();
    story.wrong.push("found None".to_owned());
    assert_eq!(found(&history), [Anomaly::WrongAnswer]);
}

#[test]
fn a_task_that_does_not_end_is_stuck() {
    let mut history = good();
    history.rows.get_mut(KEY).unwrap().left = Left::Pending;
    assert_eq!(found(&history), [Anomaly::Stuck]);
}

#[test]
fn an_operation_without_an_answer_may_have_happened_or_not() {
    let unanswered = Op {
        asked: 90_000,
        answered: None,
        step: Step::Arm {
            due: DUE,
            busy: true,
        },
    };
    let not = history(Source::Client, vec![unanswered], Vec::new(), None);
    assert_eq!(found(&not), []);
    let done = row(DUE, Left::Done, Some(1));
    let runs = vec![run(1, DUE, DUE + 3)];
    let happened = history(Source::Client, vec![unanswered], runs, Some(done));
    assert_eq!(found(&happened), []);
    assert_eq!(judge(&happened).counts.unknown, 1);
}
