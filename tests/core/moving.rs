//! Moves of tasks between two ledgers: interrupted after every step, while both are used.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

use lapsed::ledger::memory::MemoryLedger;
use lapsed::ledger::transfer::mover::{Left, Mover};
use lapsed::ledger::transfer::{GiveUp, HeldTask, MovingTask, Rows, Transfers};
use lapsed::ledger::{
    Admin, CancelAnswer, Claimant, Claims, DueScan, Ledger, NewTask, Producer, Scans, Settlement,
    Window,
};
use lapsed::task::{Contents, Recurrence, State, TaskKey, UnixMs, Verdict};
use tokio::time::advance;

const NOTE: &str = r#"{"moved_to":"there"}"#;
const START: UnixMs = UnixMs(1_795_291_200_000);
const DUE: UnixMs = UnixMs(START.0 + 60_000);
const LATER: UnixMs = UnixMs(START.0 + 90_000);

struct Both {
    from: MemoryLedger,
    to: MemoryLedger,
}

/// Runs of each due time, in the source and in the destination.
type Runs = BTreeMap<UnixMs, (u32, u32)>;

impl Both {
    fn new() -> Self {
        Self {
            from: MemoryLedger::new(START),
            to: MemoryLedger::new(START),
        }
    }

    async fn free(&self) -> Vec<MovingTask> {
        let page = self
            .from
            .whole_rows(Rows::Unfinished, None, 10)
            .await
            .unwrap();
        page.tasks
    }

    /// The first steps of a move, as a process takes them that is killed then.
    async fn interrupted_after(&self, steps: usize) {
        let tasks = self.free().await;
        let held: Vec<HeldTask> = tasks.iter().map(MovingTask::held).collect();
        if steps >= 1 {
            self.to.stage(&tasks).await.unwrap();
        }
        if steps >= 2 {
            self.from.freeze(&tasks).await.unwrap();
        }
        if steps >= 3 {
            self.to.admit(&held).await.unwrap();
        }
        if steps >= 4 {
            self.from.give_up(&held, GiveUp::Moved, NOTE).await.unwrap();
        }
    }

    /// A move from its start to its end.
    async fn moved(&self) -> Left {
        let mut mover = Mover::new(&self.from, &self.to, NOTE.to_owned());
        mover.tidy().await.unwrap();
        for _ in 0..5 {
            let left = mover.pass(|_| ControlFlow::Continue(())).await.unwrap();
            if self.free().await.is_empty() {
                return left;
            }
        }
        panic!("tasks are left: {:?}", self.free().await);
    }

    /// Both daemons run what is due, and find no lease that never ends.
    async fn run_all(&self, runs: &mut Runs) {
        for (ledger, source) in [(&self.from, true), (&self.to, false)] {
            for due in run_due(ledger).await {
                let of_due = runs.entry(due).or_default();
                *(if source { &mut of_due.0 } else { &mut of_due.1 }) += 1;
            }
            let stats = ledger.stats().await.unwrap();
            assert_eq!((stats.running, stats.pending, stats.waiting), (0, 0, 0));
        }
    }
}

/// Claims and completes everything that is due. Returns the due times.
async fn run_due(ledger: &MemoryLedger) -> Vec<UnixMs> {
    let scan = DueScan {
        window: Window::OverdueOldest(Duration::ZERO),
        after: None,
        limit: 100,
    };
    let due = ledger.scan(scan).await.unwrap().rows;
    let armings: Vec<_> = due.iter().map(|row| row.arming).collect();
    let by = Claimant {
        daemon: "test:1".into(),
        lease: Duration::from_secs(30),
    };
    let claims = ledger.claim(&armings, &by).await.unwrap();
    let settlements: Vec<Settlement> = claims
        .iter()
        .map(|claim| Settlement {
            lease: claim.lease,
            verdict: Verdict::Complete,
        })
        .collect();
    ledger.settle(&settlements).await.unwrap();
    claims.iter().map(|claim| claim.lease.arming.due).collect()
}

fn key(name: &str) -> TaskKey {
    TaskKey::build("Order", "close", [name]).unwrap()
}

async fn create(ledger: &MemoryLedger, due: UnixMs) {
    let task = NewTask::new(key("1"), due);
    ledger.create(&[task]).await.unwrap();
}

async fn cancel(ledger: &MemoryLedger) -> CancelAnswer {
    ledger.cancel(&[key("1")]).await.unwrap()[0]
}

/// Time passes until everything is due.
async fn all_due() {
    advance(Duration::from_secs(600)).await;
}

#[tokio::test(start_paused = true)]
async fn two_ledgers_have_different_identities() {
    let both = Both::new();
    let identities = [&both.from, &both.to].map(Transfers::identity);
    assert!(identities.iter().all(Option::is_some), "{identities:?}");
    assert_ne!(identities[0], identities[1]);
}

#[tokio::test(start_paused = true)]
async fn a_task_runs_once_wherever_its_move_is_interrupted() {
    for steps in 0..=4 {
        let (both, mut runs) = (Both::new(), Runs::new());
        create(&both.from, DUE).await;
        both.interrupted_after(steps).await;
        both.moved().await;
        all_due().await;
        both.run_all(&mut runs).await;
        assert_eq!(runs, Runs::from([(DUE, (0, 1))]), "{steps} steps");
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_falls_due_during_its_move_runs_once() {
    for steps in 0..=4 {
        let (both, mut runs) = (Both::new(), Runs::new());
        create(&both.from, DUE).await;
        both.interrupted_after(steps).await;
        all_due().await;
        let in_source = run_due(&both.from).await.len() as u32;
        both.moved().await;
        both.run_all(&mut runs).await;
        let in_destination = runs.get(&DUE).map_or(0, |runs| runs.1);
        let expected = if steps < 2 { (1, 0) } else { (0, 1) };
        assert_eq!((in_source, in_destination), expected, "{steps} steps");
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancellation_in_the_source_holds_until_the_source_says_that_the_task_is_done() {
    for steps in 0..=4 {
        let (both, mut runs) = (Both::new(), Runs::new());
        create(&both.from, DUE).await;
        both.interrupted_after(steps).await;
        let answer = cancel(&both.from).await;
        let expected = match steps {
            0 | 1 => CancelAnswer::Cancelled,
            2 | 3 => CancelAnswer::Running,
            _ => CancelAnswer::Finished(State::Done),
        };
        assert_eq!(answer, expected, "{steps} steps");
        both.moved().await;
        all_due().await;
        both.run_all(&mut runs).await;
        assert_eq!(runs.len(), usize::from(steps == 4), "{steps} steps");
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancellation_in_the_destination_holds_as_soon_as_the_task_is_there() {
    for steps in 1..=4 {
        let (both, mut runs) = (Both::new(), Runs::new());
        create(&both.from, DUE).await;
        both.interrupted_after(steps).await;
        let answer = cancel(&both.to).await;
        let expected = match steps {
            1 | 2 => CancelAnswer::Running,
            _ => CancelAnswer::Cancelled,
        };
        assert_eq!(answer, expected, "{steps} steps");
        both.moved().await;
        all_due().await;
        both.run_all(&mut runs).await;
        assert_eq!(runs, Runs::new(), "{steps} steps");
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_is_created_again_in_the_source_runs_at_its_new_time_only() {
    for steps in 0..=4 {
        let (both, mut runs) = (Both::new(), Runs::new());
        create(&both.from, DUE).await;
        both.interrupted_after(steps).await;
        advance(Duration::from_millis(10)).await;
        create(&both.from, LATER).await;
        both.moved().await;
        all_due().await;
        both.run_all(&mut runs).await;
        assert_eq!(runs, Runs::from([(LATER, (0, 1))]), "{steps} steps");
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_is_created_again_in_the_destination_runs_at_its_new_time_only() {
    for steps in 0..=4 {
        let (both, mut runs) = (Both::new(), Runs::new());
        create(&both.from, DUE).await;
        both.interrupted_after(steps).await;
        advance(Duration::from_millis(10)).await;
        create(&both.to, LATER).await;
        both.moved().await;
        all_due().await;
        both.run_all(&mut runs).await;
        assert_eq!(runs, Runs::from([(LATER, (0, 1))]), "{steps} steps");
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_moves_back() {
    let (both, mut runs) = (Both::new(), Runs::new());
    create(&both.from, DUE).await;
    both.moved().await;
    let back = Both {
        from: both.to,
        to: both.from,
    };
    for steps in 0..=4 {
        back.interrupted_after(steps).await;
    }
    back.moved().await;
    all_due().await;
    back.run_all(&mut runs).await;
    assert_eq!(runs, Runs::from([(DUE, (0, 1))]));
}

#[tokio::test(start_paused = true)]
async fn a_move_reversed_half_way_leaves_each_task_in_one_ledger() {
    for steps in 0..=4 {
        let (both, mut runs) = (Both::new(), Runs::new());
        create(&both.from, DUE).await;
        both.interrupted_after(steps).await;
        let back = Both {
            from: both.to,
            to: both.from,
        };
        back.moved().await;
        all_due().await;
        back.run_all(&mut runs).await;
        let total: u32 = runs.values().map(|runs| runs.0 + runs.1).sum();
        assert_eq!(total, 1, "{steps} steps: {runs:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_moved_task_keeps_everything_but_its_id() {
    let both = Both::new();
    let task = NewTask {
        contents: Contents {
            payload: Some("[1]".into()),
            tag: Some("eu".into()),
            max_attempts: Some(7),
        },
        attempts: 3,
        recurrence: Some(
            r#"{"every":"1m","start":"2026-01-01T00:00:00Z"}"#.parse::<Recurrence>().unwrap(),
        ),
        ..NewTask::new(key("1"), DUE)
    };
    both.from.create(&[task]).await.unwrap();
    let before = both.from.find(&key("1")).await.unwrap().unwrap();
    advance(Duration::from_secs(1)).await;
    both.moved().await;
    let mut after = both.to.find(&key("1")).await.unwrap().unwrap();
    assert_eq!(after.daemon, "lapsed move");
    after.daemon.clone_from(&before.daemon);
    assert_eq!(after, before);
    let left = both.from.find(&key("1")).await.unwrap().unwrap();
    assert_eq!(
        (left.state, left.result.as_deref()),
        (State::Done, Some(NOTE))
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_repeated_in_the_source_does_not_create_a_moved_task_again() {
    let (both, mut runs) = (Both::new(), Runs::new());
    create(&both.from, DUE).await;
    both.moved().await;
    create(&both.from, DUE).await;
    both.moved().await;
    all_due().await;
    both.run_all(&mut runs).await;
    assert_eq!(runs, Runs::from([(DUE, (0, 1))]));
}

#[tokio::test(start_paused = true)]
async fn a_recurring_task_that_the_destination_has_continues_there() {
    let (both, mut runs) = (Both::new(), Runs::new());
    for (ledger, due) in [(&both.from, DUE), (&both.to, LATER)] {
        let task = NewTask {
            recurrence: Some(r#"{"every":"1m","start":"2026-01-01T00:00:00Z"}"#.parse().unwrap()),
            ..NewTask::new(key("1"), due)
        };
        ledger.create(&[task]).await.unwrap();
    }
    both.moved().await;
    all_due().await;
    both.run_all(&mut runs).await;
    assert_eq!(runs, Runs::from([(LATER, (0, 1))]));
}

#[tokio::test(start_paused = true)]
async fn a_running_task_is_left_to_the_daemon_that_runs_it() {
    let both = Both::new();
    create(&both.from, DUE).await;
    all_due().await;
    let arming = both.free().await;
    assert_eq!(arming.len(), 1);
    let by = Claimant {
        daemon: "test:1".into(),
        lease: Duration::from_secs(30),
    };
    let found = both
        .from
        .look_up(&[key("1")])
        .await
        .unwrap()
        .remove(0)
        .unwrap();
    let claims = both.from.claim(&[found.arming], &by).await.unwrap();
    let mut mover = Mover::new(&both.from, &both.to, NOTE.to_owned());
    let left = mover.pass(|_| ControlFlow::Continue(())).await.unwrap();
    assert_eq!((left.later, mover.counts().moved), (1, 0));
    assert!(both.to.find(&key("1")).await.unwrap().is_none());
    assert_eq!(
        both.from
            .renew(&[claims[0].lease], by.lease)
            .await
            .unwrap()
            .len(),
        1
    );
}

#[tokio::test(start_paused = true)]
async fn finished_tasks_are_copied_once_and_those_that_were_moved_are_not() {
    let both = Both::new();
    create(&both.from, DUE).await;
    all_due().await;
    assert_eq!(run_due(&both.from).await.len(), 1);
    let other = NewTask::new(key("2"), UnixMs(both.from.clock().now().0 + 60_000));
    both.from.create(&[other]).await.unwrap();
    let mut mover = Mover::new(&both.from, &both.to, NOTE.to_owned());
    mover.pass(|_| ControlFlow::Continue(())).await.unwrap();
    for _ in 0..2 {
        mover
            .copy_finished(|_| ControlFlow::Continue(()))
            .await
            .unwrap();
    }
    assert_eq!((mover.counts().moved, mover.counts().copied), (1, 1));
    let stats = both.to.stats().await.unwrap();
    assert_eq!((stats.pending, stats.done), (1, 1));
}
