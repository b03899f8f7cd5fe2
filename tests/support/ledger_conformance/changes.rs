//! Changes of several tasks in one transaction.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use lapsed::ledger::{
    CancelAnswer, Change, Changed, Ledger, NewTask, RescheduleAnswer, RowSnapshot, See, by_rows,
};
use lapsed::task::{Contents, State, TaskKey, UnixMs};

use crate::ledger_conformance::rig::{
    LEASE, claim_due, create, create_at, in_ms, key, record, settle, state,
};

rules! {
    rows_are_read_in_the_order_of_keys
    all_changes_are_made_together
    changes_of_many_tasks_keep_payloads_that_were_not_read
    a_task_is_written_over_at_the_same_due_time
    a_finished_arming_is_not_written_over
    an_arming_behind_an_older_run_is_overwritten_moved_and_cancelled
    a_refused_change_changes_nothing_of_the_others
    counting_up_in_parallel_loses_nothing
    one_of_many_creates_a_missing_task
}

fn task(key: &TaskKey, due: UnixMs, payload: &str) -> Change {
    Change::Write(Box::new(NewTask {
        contents: Contents {
            payload: Some(payload.to_owned()),
            ..Contents::default()
        },
        ..NewTask::new(key.clone(), due)
    }))
}

async fn change(
    ledger: &impl Ledger,
    keys: &[TaskKey],
    changes: Vec<Change>,
) -> (Vec<Option<State>>, Vec<Changed>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sees = Arc::clone(&seen);
    let decide = move |_: UnixMs, rows: &[Option<RowSnapshot>]| {
        let states = rows.iter();
        let states = states.map(|row| row.as_ref().map(|row| row.lookup.state));
        *sees.lock().unwrap() = states.collect();
        changes.clone()
    };
    let (see, decide) = by_rows(keys, decide);
    let changed = ledger.change(keys, see, decide).await.unwrap();
    let seen = std::mem::take(&mut *seen.lock().unwrap());
    (seen, changed)
}

/// The rows of keys, in their order.
async fn read_rows(ledger: &impl Ledger, keys: &[TaskKey]) -> Vec<Option<RowSnapshot>> {
    struct Rows(Mutex<Vec<Option<RowSnapshot>>>);
    impl See for Rows {
        fn needs_payload(&self, _: usize) -> bool {
            true
        }

        fn see(&self, place: usize, row: Option<RowSnapshot>) {
            self.0.lock().unwrap()[place] = row;
        }
    }
    let rows = Arc::new(Rows(Mutex::new(vec![None; keys.len()])));
    ledger
        .read_rows(keys, Arc::clone(&rows) as Arc<dyn See>)
        .await
        .unwrap();
    std::mem::take(&mut *rows.0.lock().unwrap())
}

async fn rows_are_read_in_the_order_of_keys(ledger: &impl Ledger) {
    let [one, none, other] = [3, 2, 1].map(|arg| key("change_read", arg));
    let armings = [
        create(ledger, &one, 60_000).await,
        create(ledger, &other, 50_000).await,
    ];
    let rows = read_rows(ledger, &[one, none, other]).await;
    let found = rows.iter();
    let found: Vec<_> = found
        .map(|row| row.as_ref().map(|row| row.lookup.arming))
        .collect();
    assert_eq!(found, [Some(armings[0]), None, Some(armings[1])]);
    assert!(read_rows(ledger, &[]).await.is_empty());
}

/// More tasks than an adapter keeps in memory.
async fn changes_of_many_tasks_keep_payloads_that_were_not_read(ledger: &impl Ledger) {
    struct Unread;
    impl See for Unread {
        fn needs_payload(&self, _: usize) -> bool {
            false
        }

        fn see(&self, _: usize, row: Option<RowSnapshot>) {
            assert!(row.is_some());
        }
    }
    let keys: Vec<TaskKey> = (0..150).map(|arg| key("change_many", arg)).collect();
    let due = in_ms(ledger, 60_000).await;
    let payload = |number: usize| Some(format!("{{\"number\":{number}}}"));
    let tasks: Vec<NewTask> = keys
        .iter()
        .zip(0..)
        .map(|(key, number)| NewTask {
            contents: Contents {
                payload: payload(number),
                ..Contents::default()
            },
            ..NewTask::new(key.clone(), due)
        })
        .collect();
    ledger.create(&tasks).await.unwrap();
    let later = UnixMs(due.0 + 1_000);
    let wishes = move |_| {
        (0..150)
            .map(|number| match number % 3 {
                0 => Change::Move(later),
                1 => Change::Keep,
                _ => Change::Cancel,
            })
            .collect()
    };
    ledger
        .change(&keys, Arc::new(Unread), Arc::new(wishes))
        .await
        .unwrap();
    for (number, key) in keys.iter().enumerate() {
        let record = record(ledger, key).await;
        assert_eq!(record.payload, payload(number), "{number}");
        let (state, at) = match number % 3 {
            0 => (State::Pending, later),
            1 => (State::Pending, due),
            _ => (State::Cancelled, due),
        };
        assert_eq!((record.state, record.due), (state, at), "{number}");
    }
}

async fn all_changes_are_made_together(ledger: &impl Ledger) {
    let keys =
        ["new", "over", "moved", "gone", "kept", "none"].map(|arg| key("change_together", arg));
    for key in &keys[1..5] {
        create(ledger, key, 60_000).await;
    }
    let due = in_ms(ledger, 90_000).await;
    let changes = vec![
        task(&keys[0], due, "1"),
        task(&keys[1], due, "2"),
        Change::Move(due),
        Change::Cancel,
        Change::Keep,
        Change::Cancel,
    ];
    let (seen, changed) = change(ledger, &keys, changes).await;
    let pending = Some(State::Pending);
    assert_eq!(seen, [None, pending, pending, pending, pending, None]);
    for (index, payload) in [(0, Some("1")), (1, Some("2")), (2, None)] {
        let record = record(ledger, &keys[index]).await;
        assert_eq!((record.due, record.payload.as_deref()), (due, payload));
        assert!(
            matches!(changed[index], Changed::Armed(arming) if arming.to_string() == record.id),
            "{index}"
        );
    }
    assert_eq!(state(ledger, &keys[3]).await, State::Cancelled);
    assert_eq!(state(ledger, &keys[4]).await, State::Pending);
    let rest = [Changed::Cancelled, Changed::Kept, Changed::Kept];
    assert_eq!(changed[3..], rest);
}

async fn a_task_is_written_over_at_the_same_due_time(ledger: &impl Ledger) {
    let key = key("change_same_due", 1);
    let due = in_ms(ledger, 60_000).await;
    let before = create_at(ledger, &key, due).await.arming;
    let keys = [key];
    let (_, changed) = change(ledger, &keys, vec![task(&keys[0], due, "7")]).await;
    assert_eq!(changed, [Changed::Armed(before)]);
    let record = record(ledger, &keys[0]).await;
    assert_eq!(record.payload.as_deref(), Some("7"));
    assert_eq!((record.state, record.due), (State::Pending, due));
}

async fn an_arming_behind_an_older_run_is_overwritten_moved_and_cancelled(ledger: &impl Ledger) {
    let claim = claim_due(ledger, &key("change_behind", 1), LEASE).await;
    let keys = [claim.key.clone()];
    let due = in_ms(ledger, 60_000).await;
    create_at(ledger, &keys[0], due).await;
    let row = read_rows(ledger, &keys).await.remove(0).unwrap();
    assert!(row.lookup.older_run && row.lookup.state == State::Running);
    change(ledger, &keys, vec![task(&keys[0], due, "7")]).await;
    assert_eq!(record(ledger, &keys[0]).await.payload.as_deref(), Some("7"));

    let later = UnixMs(due.0 + 60_000);
    let (_, changed) = change(ledger, &keys, vec![Change::Move(later)]).await;
    assert!(matches!(changed[0], Changed::Armed(arming) if arming.due == later));
    let moved = ledger.reschedule(&keys[0], due).await.unwrap();
    assert!(matches!(moved, RescheduleAnswer::Moved(arming) if arming.due == due));
    let row = read_rows(ledger, &keys).await.remove(0).unwrap();
    assert!(row.lookup.older_run && row.contents.payload.as_deref() == Some("7"));

    let cancelled = ledger.cancel(&keys).await.unwrap();
    // The answer is about the older run, which goes on.
    assert_eq!(cancelled, [CancelAnswer::Running]);
    let settled = settle(ledger, &claim, lapsed::task::Verdict::Complete).await;
    assert_eq!(settled, lapsed::ledger::Settled::Superseded);
    assert_eq!(state(ledger, &keys[0]).await, State::Cancelled);
}

async fn a_finished_arming_is_not_written_over(ledger: &impl Ledger) {
    let claim = claim_due(ledger, &key("change_finished", 1), LEASE).await;
    settle(ledger, &claim, lapsed::task::Verdict::Complete).await;
    let keys = [claim.key.clone()];
    let due = claim.lease.arming.due;
    change(ledger, &keys, vec![task(&keys[0], due, "7")]).await;
    assert_eq!(state(ledger, &keys[0]).await, State::Done);
    let later = UnixMs(due.0 + 60_000);
    change(ledger, &keys, vec![task(&keys[0], later, "7")]).await;
    assert_eq!(state(ledger, &keys[0]).await, State::Pending);
}

/// Running tasks are not moved.
async fn a_refused_change_changes_nothing_of_the_others(ledger: &impl Ledger) {
    let claim = claim_due(ledger, &key("change_running", 1), LEASE).await;
    let keys = [claim.key.clone(), key("change_running", 2)];
    let due = in_ms(ledger, 60_000).await;
    let (seen, changed) = change(
        ledger,
        &keys,
        vec![Change::Move(due), task(&keys[1], due, "1")],
    )
    .await;
    assert_eq!(seen, [Some(State::Running), None]);
    assert_eq!(changed[0], Changed::Kept);
    assert_eq!(state(ledger, &keys[0]).await, State::Running);
    assert_eq!(state(ledger, &keys[1]).await, State::Pending);
    change(ledger, &keys[..1], vec![Change::Cancel]).await;
    assert!(record(ledger, &keys[0]).await.cancel_requested);
}

/// Each transaction reads the payload and writes the next number.
async fn counting_up_in_parallel_loses_nothing(ledger: &impl Ledger) {
    const TIMES: u32 = 8;
    let keys = [key("change_count", 1)];
    let due = in_ms(ledger, 600_000).await;
    let start = NewTask {
        contents: Contents {
            payload: Some("0".to_owned()),
            ..Contents::default()
        },
        ..NewTask::new(keys[0].clone(), due)
    };
    ledger.create(&[start]).await.unwrap();
    let once = || {
        let key = keys[0].clone();
        let next = move |_: UnixMs, rows: &[Option<RowSnapshot>]| {
            let row = rows[0].as_ref().unwrap();
            let count: u32 = row.contents.payload.as_ref().unwrap().parse().unwrap();
            let due = UnixMs(row.lookup.arming.due.0 + 1);
            vec![task(&key, due, &(count + 1).to_string())]
        };
        let (see, next) = by_rows(&keys, next);
        ledger.change(&keys, see, next)
    };
    let all = futures_util::future::join_all((0..TIMES).map(|_| once())).await;
    assert!(all.iter().all(Result::is_ok), "{all:?}");
    let record = record(ledger, &keys[0]).await;
    assert_eq!(record.payload, Some(TIMES.to_string()));
}

/// Only the first sees that there is none.
async fn one_of_many_creates_a_missing_task(ledger: &impl Ledger) {
    let keys = [key("change_race", 1)];
    let due = in_ms(ledger, 600_000).await;
    let winners = Arc::new(AtomicU32::new(0));
    let once = |number: i64| {
        let (key, winners) = (keys[0].clone(), Arc::clone(&winners));
        let won = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let sets = Arc::clone(&won);
        let decide = move |_: UnixMs, rows: &[Option<RowSnapshot>]| {
            let is_missing = rows[0].is_none();
            sets.store(is_missing, Ordering::Relaxed);
            vec![match is_missing {
                true => task(&key, UnixMs(due.0 + number), &number.to_string()),
                false => Change::Keep,
            }]
        };
        let keys = &keys;
        async move {
            let (see, decide) = by_rows(keys, decide);
            ledger.change(keys, see, decide).await.unwrap();
            winners.fetch_add(u32::from(won.load(Ordering::Relaxed)), Ordering::Relaxed);
        }
    };
    futures_util::future::join_all((0..8).map(once)).await;
    assert_eq!(winners.load(Ordering::Relaxed), 1);
}
