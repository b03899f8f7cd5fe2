//! Moves between ledgers, step by step.

use lapsed::ledger::memory::MemoryLedger;
use lapsed::ledger::transfer::{GiveUp, HeldTask, MovingTask, Rows, Staged, Transfers};
use lapsed::ledger::{CancelAnswer, NewTask, Producer as _};
use lapsed::task::{Contents, State, TaskKey, UnixMs, Verdict};

use crate::ledger_conformance::rig::{
    LEASE, bury, cancel, claim, claim_due, create, create_at, in_ms, key, lookup, pass, record,
    retry_at, settle, state,
};

rules! {
    a_task_moves_in_and_out_with_everything_that_it_has
    a_staged_task_is_running_until_it_is_admitted
    a_task_that_has_changed_or_runs_is_not_frozen
    a_task_that_was_admitted_since_it_was_read_is_not_frozen
    a_frozen_task_that_is_created_again_is_pending_once_it_is_given_up
    a_frozen_task_that_is_cancelled_is_reported
    a_task_that_was_unstaged_by_mistake_is_admitted
    an_older_state_of_a_task_is_not_staged_over_a_newer_one
    a_step_for_another_due_time_changes_nothing
    a_newer_task_of_the_destination_is_kept
    finished_rows_are_copied_where_there_is_none
    pages_of_whole_rows_have_each_row_once
}

const NOTE: &str = r#"{"moved_to":"there"}"#;

/// The row of a key, as a move reads it.
async fn row_of(ledger: &impl Transfers, which: Rows, key: &TaskKey) -> MovingTask {
    let mut after = None;
    loop {
        let page = ledger.whole_rows(which, after, 7).await.unwrap();
        if let Some(found) = page.tasks.into_iter().find(|task| task.key() == key) {
            return found;
        }
        after = page.next;
        assert!(after.is_some(), "{key} has no row");
    }
}

async fn move_one(from: &impl Transfers, to: &impl Transfers, key: &TaskKey) {
    let task = [row_of(from, Rows::Unfinished, key).await];
    assert_eq!(to.stage(&task).await.unwrap(), [Staged::Held]);
    assert_eq!(from.freeze(&task).await.unwrap(), [true]);
    let held = task.map(|task| task.held());
    to.admit(&held).await.unwrap();
    let left = from.give_up(&held, GiveUp::Moved, NOTE).await.unwrap();
    assert_eq!(left, []);
}

/// A task that is held in a ledger, as after its first step there.
async fn staged(ledger: &impl Transfers, key: &TaskKey, ahead_ms: i64) -> MemoryLedger {
    let source = MemoryLedger::default();
    let due = in_ms(ledger, ahead_ms).await;
    create_at(&source, key, due).await;
    let task = [row_of(&source, Rows::Unfinished, key).await];
    assert_eq!(ledger.stage(&task).await.unwrap(), [Staged::Held]);
    source
}

/// What a row is held for.
async fn held_in(ledger: &impl Transfers, key: &TaskKey) -> HeldTask {
    let arming = lookup(ledger, key).await.unwrap().arming;
    HeldTask {
        key: key.clone(),
        due: arming.due,
    }
}

async fn a_task_moves_in_and_out_with_everything_that_it_has(ledger: &impl Transfers) {
    let key = key("moving-all", "é");
    let (source, target) = (MemoryLedger::default(), MemoryLedger::default());
    let due = in_ms(&source, -50).await;
    let task = NewTask { contents: Contents { payload: Some(r#"{"$lapsed":{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},"payload":"ü"}"#.into()), tag: Some("eu".into()), max_attempts: Some(7) }, attempts: 3, recurrence: Some(r#"{"every":"1m","start":"2026-01-01T00:00:00Z"}"#.parse().unwrap()), ..NewTask::new(key.clone(), due) };
    let created = source.create(&[task]).await.unwrap()[0].arming;
    let run = claim(&source, created, LEASE).await.unwrap();
    let again = in_ms(&source, 60_000).await;
    settle(&source, &run, retry_at(again)).await;
    let mut before = record(&source, &key).await;
    assert_eq!((before.attempt, before.due_at), (4, again));
    before.daemon = "lapsed move".into();
    for _ in 0..2 {
        move_one(&source, ledger, &key).await;
        let mut there = record(ledger, &key).await;
        there.id.clone_from(&before.id);
        assert_eq!(there, before);
        move_one(ledger, &target, &key).await;
        assert_eq!(record(&target, &key).await, before);
        let left = record(ledger, &key).await;
        assert_eq!(
            (left.state, left.result.as_deref()),
            (State::Done, Some(NOTE))
        );
        // And back, to move the same way again.
        move_one(&target, &source, &key).await;
    }
}

async fn a_staged_task_is_running_until_it_is_admitted(ledger: &impl Transfers) {
    let [due, cancelled] = ["due", "cancelled"].map(|name| key("moving-staged", name));
    for key in [&due, &cancelled] {
        staged(ledger, key, -10).await;
        let found = lookup(ledger, key).await.unwrap();
        assert_eq!(found.state, State::Running);
        assert!(claim(ledger, found.arming, LEASE).await.is_none());
    }
    assert_eq!(cancel(ledger, &cancelled).await, CancelAnswer::Running);
    let mut held = Vec::new();
    for key in [&due, &cancelled] {
        held.push(held_in(ledger, key).await);
    }
    for _ in 0..2 {
        ledger.admit(&held).await.unwrap();
        assert_eq!(state(ledger, &due).await, State::Pending);
        assert_eq!(state(ledger, &cancelled).await, State::Cancelled);
    }
    let arming = lookup(ledger, &due).await.unwrap().arming;
    assert_eq!(
        claim(ledger, arming, LEASE).await.unwrap().attempt.number,
        1
    );
}

/// A freeze that is carried out late, after the move was turned round.
async fn a_task_that_was_admitted_since_it_was_read_is_not_frozen(ledger: &impl Transfers) {
    let [pending, frozen, unstaged] =
        ["pending", "frozen", "unstaged"].map(|name| key("moving-back", name));
    for key in [&pending, &frozen, &unstaged] {
        create(ledger, key, 60_000).await;
        let seen = [row_of(ledger, Rows::Unfinished, key).await];
        let held = [held_in(ledger, key).await];
        if *key != pending {
            assert_eq!(ledger.freeze(&seen).await.unwrap(), [true]);
        }
        if *key == unstaged {
            ledger.unstage(&held).await.unwrap();
        }
        ledger.admit(&held).await.unwrap();
        assert_eq!(ledger.freeze(&seen).await.unwrap(), [false], "{key}");
        assert_eq!(state(ledger, key).await, State::Pending);
        let seen = [row_of(ledger, Rows::Unfinished, key).await];
        assert_eq!(ledger.freeze(&seen).await.unwrap(), [true], "{key}");
    }
}

async fn a_task_that_has_changed_or_runs_is_not_frozen(ledger: &impl Transfers) {
    let [moved, ran, same] = ["moved", "ran", "same"].map(|name| key("moving-changed", name));
    create(ledger, &moved, 60_000).await;
    let due = create(ledger, &ran, -10).await;
    create(ledger, &same, 60_000).await;
    let mut tasks = Vec::new();
    for key in [&moved, &ran, &same] {
        tasks.push(row_of(ledger, Rows::Unfinished, key).await);
    }
    create(ledger, &moved, 70_000).await;
    let run = claim(ledger, due, LEASE).await.unwrap();
    let frozen = ledger.freeze(&tasks).await.unwrap();
    assert_eq!(frozen, [false, false, true]);
    let again = in_ms(ledger, -5).await;
    settle(ledger, &run, retry_at(again)).await;
    // Repeated, it answers the same.
    let frozen = ledger.freeze(&tasks).await.unwrap();
    assert_eq!(frozen, [false, false, true]);
    assert_eq!(state(ledger, &same).await, State::Running);
    assert_eq!(state(ledger, &moved).await, State::Pending);
}

async fn a_frozen_task_that_is_created_again_is_pending_once_it_is_given_up(
    ledger: &impl Transfers,
) {
    let key = key("moving-again", 1);
    create(ledger, &key, 60_000).await;
    let task = [row_of(ledger, Rows::Unfinished, &key).await];
    assert_eq!(ledger.freeze(&task).await.unwrap(), [true]);
    let again = create(ledger, &key, -10).await;
    assert!(claim(ledger, again, LEASE).await.is_none());
    let held = task.map(|task| task.held());
    let left = ledger.give_up(&held, GiveUp::Moved, NOTE).await.unwrap();
    assert_eq!(left, []);
    assert!(claim(ledger, again, LEASE).await.is_some());
}

async fn a_frozen_task_that_is_cancelled_is_reported(ledger: &impl Transfers) {
    let key = key("moving-cancelled", 1);
    create(ledger, &key, 60_000).await;
    let task = [row_of(ledger, Rows::Unfinished, &key).await];
    assert_eq!(ledger.freeze(&task).await.unwrap(), [true]);
    assert_eq!(cancel(ledger, &key).await, CancelAnswer::Running);
    let held = task.map(|task| task.held());
    let left = ledger.give_up(&held, GiveUp::Moved, NOTE).await.unwrap();
    assert_eq!(left, held);
    assert_eq!(state(ledger, &key).await, State::Running);
    let left = ledger.give_up(&held, GiveUp::Cancelled, NOTE).await;
    assert_eq!(left.unwrap(), []);
    assert_eq!(state(ledger, &key).await, State::Cancelled);
}

async fn a_task_that_was_unstaged_by_mistake_is_admitted(ledger: &impl Transfers) {
    let [mistake, cancelled] = ["mistake", "cancelled"].map(|name| key("moving-back", name));
    for key in [&mistake, &cancelled] {
        staged(ledger, key, 60_000).await;
    }
    let mut held = Vec::new();
    for key in [&mistake, &cancelled] {
        held.push(held_in(ledger, key).await);
    }
    ledger.admit(&held[1..]).await.unwrap();
    assert_eq!(cancel(ledger, &cancelled).await, CancelAnswer::Cancelled);
    ledger.unstage(&held).await.unwrap();
    assert_eq!(state(ledger, &mistake).await, State::Cancelled);
    ledger.admit(&held).await.unwrap();
    assert_eq!(state(ledger, &mistake).await, State::Pending);
    assert_eq!(state(ledger, &cancelled).await, State::Cancelled);
    // What was admitted is not unstaged.
    ledger.unstage(&held).await.unwrap();
    assert_eq!(state(ledger, &mistake).await, State::Pending);
}

/// A statement that is carried out late does not undo the one after it.
async fn an_older_state_of_a_task_is_not_staged_over_a_newer_one(ledger: &impl Transfers) {
    let key = key("moving-older", 1);
    let source = MemoryLedger::default();
    let due = in_ms(&source, -10).await;
    let arming = create_at(&source, &key, due).await.arming;
    let old = row_of(&source, Rows::Unfinished, &key).await;
    let run = claim(&source, arming, LEASE).await.unwrap();
    let again = in_ms(&source, -5).await;
    settle(&source, &run, retry_at(again)).await;
    let new = row_of(&source, Rows::Unfinished, &key).await;
    let stage = async |task: &MovingTask| ledger.stage(std::slice::from_ref(task)).await.unwrap();
    assert_eq!(stage(&old).await, [Staged::Held]);
    assert_eq!(stage(&new).await, [Staged::Held]);
    assert_eq!(stage(&old).await, [Staged::Known]);
    let staged = row_of(ledger, Rows::Unfinished, &key).await;
    assert_eq!((staged.row.attempt, staged.row.retry_at), (1, again));
    ledger.unstage(&[old.held()]).await.unwrap();
}

/// Steps of an earlier move that are carried out late.
async fn a_step_for_another_due_time_changes_nothing(ledger: &impl Transfers) {
    let [staged, frozen] = ["staged", "frozen"].map(|name| key("moving-other", name));
    let source = MemoryLedger::default();
    create(&source, &staged, 60_000).await;
    create(ledger, &frozen, 60_000).await;
    let task = [row_of(&source, Rows::Unfinished, &staged).await];
    assert_eq!(ledger.stage(&task).await.unwrap(), [Staged::Held]);
    let task = [row_of(ledger, Rows::Unfinished, &frozen).await];
    assert_eq!(ledger.freeze(&task).await.unwrap(), [true]);
    let mut other = Vec::new();
    for key in [&staged, &frozen] {
        let held = held_in(ledger, key).await;
        let due = UnixMs(held.due.0 - 1_000);
        other.push(HeldTask { due, ..held });
    }
    ledger.admit(&other).await.unwrap();
    ledger.unstage(&other).await.unwrap();
    for how in [GiveUp::Moved, GiveUp::Cancelled] {
        assert_eq!(ledger.give_up(&other, how, NOTE).await.unwrap(), []);
    }
    for key in [&staged, &frozen] {
        assert_eq!(state(ledger, key).await, State::Running);
        let held = [held_in(ledger, key).await];
        ledger.unstage(&held).await.unwrap();
        assert_eq!(state(ledger, key).await, State::Cancelled);
    }
}

async fn a_newer_task_of_the_destination_is_kept(ledger: &impl Transfers) {
    let [newer, same, done] = ["newer", "same", "done"].map(|name| key("moving-known", name));
    let source = MemoryLedger::default();
    let mut tasks = Vec::new();
    for key in [&newer, &same] {
        create(&source, key, 60_000).await;
        tasks.push(row_of(&source, Rows::Unfinished, key).await);
    }
    let run = claim_due(ledger, &done, LEASE).await;
    create_at(&source, &done, run.lease.arming.due).await;
    tasks.push(row_of(&source, Rows::Unfinished, &done).await);
    // The two clocks may differ.
    pass(ledger, in_ms(&source, 0).await).await;
    let due = lookup(&source, &same).await.unwrap().arming.due;
    create_at(ledger, &same, due).await;
    create(ledger, &newer, 70_000).await;
    settle(ledger, &run, Verdict::Complete).await;
    let before = lookup(ledger, &newer).await;
    assert_eq!(
        ledger.stage(&tasks).await.unwrap(),
        [const { Staged::Known }; 3]
    );
    assert_eq!(lookup(ledger, &newer).await, before);
    assert_eq!(state(ledger, &same).await, State::Pending);
    assert_eq!(state(ledger, &done).await, State::Done);
}

async fn finished_rows_are_copied_where_there_is_none(ledger: &impl Transfers) {
    let [new, old] = ["new", "old"].map(|name| key("moving-copy", name));
    let source = MemoryLedger::default();
    let mut tasks = Vec::new();
    for key in [&new, &old] {
        let run = claim_due(&source, key, LEASE).await;
        settle(&source, &run, Verdict::CompleteWith("[7]".into())).await;
        tasks.push(row_of(&source, Rows::Finished, key).await);
    }
    create(ledger, &old, 60_000).await;
    assert_eq!(ledger.copy(&tasks).await.unwrap(), 1);
    assert_eq!(ledger.copy(&tasks).await.unwrap(), 0);
    let (mut copy, original) = (record(ledger, &new).await, record(&source, &new).await);
    copy.id.clone_from(&original.id);
    assert_eq!(copy, original);
    assert_eq!(state(ledger, &old).await, State::Pending);
}

async fn pages_of_whole_rows_have_each_row_once(ledger: &impl Transfers) {
    let rule = "moving-pages";
    let (mut unfinished, mut finished) = (Vec::new(), Vec::new());
    for name in ["1", "2", "3"] {
        let [waits, runs, done, dead, cancelled] = ["waits", "runs", "done", "dead", "cancelled"]
            .map(|what| key(rule, format!("{what}-{name}")));
        create(ledger, &waits, 60_000).await;
        claim_due(ledger, &runs, LEASE).await;
        // The row is deleted, and has a lease.
        assert_eq!(cancel(ledger, &runs).await, CancelAnswer::Running);
        let run = claim_due(ledger, &done, LEASE).await;
        settle(ledger, &run, Verdict::Complete).await;
        let run = claim_due(ledger, &dead, LEASE).await;
        settle(ledger, &run, bury()).await;
        create(ledger, &cancelled, 60_000).await;
        cancel(ledger, &cancelled).await;
        unfinished.extend([waits, runs]);
        finished.extend([done, dead, cancelled]);
    }
    for (which, mut expected) in [(Rows::Unfinished, unfinished), (Rows::Finished, finished)] {
        for limit in [1, 2, 3, 100] {
            let (mut found, mut after, mut pages) = (Vec::new(), None, 0);
            loop {
                let page = ledger.whole_rows(which, after, limit).await.unwrap();
                assert!(page.tasks.len() <= limit as usize && pages < 1_000);
                found.extend(page.tasks.into_iter().map(|task| task.row.key));
                (after, pages) = (page.next, pages + 1);
                if after.is_none() {
                    break;
                }
            }
            found.retain(|key| key.as_str().contains(rule));
            found.sort();
            expected.sort();
            assert_eq!(found, expected, "{which:?}, {limit} at a time");
        }
    }
}
