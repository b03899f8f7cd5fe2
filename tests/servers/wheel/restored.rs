//! Redis that returns with older data, programs that push what was pushed before, and daemons that begin late.

use std::collections::BTreeSet;

use lapsed::UnixMs;
use lapsed::task::State;

use crate::support::daemon::Daemon;
use crate::support::handlers::handlers;
use crate::support::wait::until;
use crate::wheel::rig::WheelRig;

impl WheelRig {
    /// Entries for the visits of the next seconds, and some for later ones. Returns how many there are of each.
    async fn push_backlog(&self) -> (usize, usize) {
        let second = self.now_ms().await / 1_000;
        for ahead in 3..13 {
            for number in 0..2 {
                let uid = format!("{ahead}--{number}");
                self.push((second + ahead) % 3_600, &uid, 0).await;
            }
            self.push(
                (second + ahead + 1_000) % 3_600,
                &format!("{ahead}--later"),
                2,
            )
            .await;
        }
        // Pushed twice on purpose.
        self.push((second + 5) % 3_600, "5--0", 0).await;
        (21, 10)
    }

    async fn lists_are_empty(&self) -> bool {
        let mut keys: Vec<String> = self.redis_says(&["KEYS", "task_*"]).await;
        keys.retain(|key| !key.starts_with("task_lapsed:") || key == "task_lapsed:taken");
        keys.is_empty()
    }

    async fn save(&self) {
        let () = self.redis_says(&["SAVE"]).await;
    }

    /// Redis dies, and returns with what it had written last.
    async fn restore(&mut self) {
        let redis = &mut self.inner().redis;
        redis.kill();
        redis.start_again().await.unwrap();
    }

    async fn until_all_are_known(&self, rows: i64) {
        until("nothing waits in lists", async || {
            self.lists_are_empty().await
        })
        .await;
        assert_eq!(self.rows().await, rows, "each entry is one task");
    }

    /// Waits until all entries are known and `near` of them have run, each once.
    async fn until_each_ran_once(&self, near: usize, rows: i64) {
        self.until_all_are_known(rows).await;
        self.until_done(near).await;
        self.each_ran_once(near).await;
        assert_eq!(self.rows().await, rows);
    }
}

#[tokio::test]
async fn entries_that_redis_returns_with_run_once() {
    let mut rig = WheelRig::new("").await;
    let (near, later) = rig.push_backlog().await;
    let daemon = rig.turning().await;
    let rows = (near + later) as i64;
    rig.until_rows(rows).await;
    until("some have run", async || rig.with_status(1).await >= 5).await;
    // With a last tick in the data.
    rig.save().await;
    rig.restore().await;
    daemon.hears_events().await;
    rig.until_each_ran_once(near, rows).await;
}

#[tokio::test]
async fn entries_of_a_snapshot_from_before_the_wheel_turned_run_once() {
    let mut rig = WheelRig::new("").await;
    let (near, later) = rig.push_backlog().await;
    rig.save().await;
    let daemon = rig.turning().await;
    let rows = (near + later) as i64;
    rig.until_rows(rows).await;
    until("some have run", async || rig.with_status(1).await >= 5).await;
    rig.restore().await;
    daemon.hears_events().await;
    rig.until_each_ran_once(near, rows).await;
}

#[tokio::test]
async fn entries_of_a_snapshot_from_before_the_wheel_turned_are_known_to_another_daemon() {
    let mut rig = WheelRig::new("").await;
    let (near, later) = rig.push_backlog().await;
    rig.save().await;
    let daemon = rig.turning().await;
    let rows = (near + later) as i64;
    rig.until_rows(rows).await;
    until("some have run", async || rig.with_status(1).await >= 5).await;
    daemon.stop().await;
    rig.restore().await;
    let _daemon = rig.turning().await;
    rig.until_each_ran_once(near, rows).await;
}

/// A command that is not the wheel's may be the first one that finds the server again.
#[tokio::test]
async fn a_restart_that_another_command_notices_first_makes_no_entry_new() {
    let mut rig = WheelRig::new("").await;
    let (near, later) = rig.push_backlog().await;
    rig.save().await;
    let daemon = rig.turning().await;
    let rows = (near + later) as i64;
    rig.until_rows(rows).await;
    until("some have run", async || rig.with_status(1).await >= 5).await;
    let tasks = daemon.tasks.clone();
    let busy = tokio::spawn(async move {
        for number in 0.. {
            let key = crate::support::tasks::key(&format!("Job@record@busy{number}"));
            let due = lapsed::Due::after(std::time::Duration::from_secs(900)).unwrap();
            let _ = tasks.create(lapsed::Task::from(key), due).await;
        }
    });
    rig.restore().await;
    until("nothing waits in lists", async || {
        rig.lists_are_empty().await
    })
    .await;
    busy.abort();
    let adopted = "SELECT COUNT(*) FROM tb_time_limit_task WHERE `key` NOT LIKE '%busy%'";
    assert_eq!(rig.number(adopted).await, rows);
    rig.until_done(near).await;
    rig.each_ran_once(near).await;
    assert_eq!(rig.number(adopted).await, rows);
}

#[tokio::test]
async fn entries_that_redis_returns_with_are_known_to_another_daemon() {
    let mut rig = WheelRig::new("").await;
    rig.turning().await.stop().await;
    let (near, later) = rig.push_backlog().await;
    rig.save().await;
    let rows = (near + later) as i64;
    let daemon = rig.turning().await;
    rig.until_rows(rows).await;
    let ahead =
        "SELECT `key` FROM tb_time_limit_task WHERE end_time > UNIX_TIMESTAMP() + 900 LIMIT 1";
    let cancelled: String = sqlx::query_scalar(ahead).fetch_one(&rig.sql).await.unwrap();
    let key = crate::support::tasks::key(&cancelled);
    daemon.tasks.cancel(&key).await.unwrap();
    until("some have run", async || rig.with_status(1).await >= 5).await;
    daemon.stop().await;
    rig.restore().await;
    let _daemon = rig.turning().await;
    rig.until_each_ran_once(near, rows).await;
    assert_eq!(rig.state(&cancelled).await, State::Cancelled);
}

#[tokio::test]
async fn entries_loaded_by_a_program_into_an_emptied_redis_run_once() {
    let mut rig = WheelRig::new("").await;
    let daemon = rig.turning().await;
    let second = rig.now_ms().await / 1_000;
    let push = async |rig: &WheelRig| {
        for ahead in 8..18 {
            rig.push((second + ahead) % 3_600, &format!("{ahead}"), 0)
                .await;
        }
    };
    push(&rig).await;
    rig.until_rows(10).await;
    rig.inner().redis.restart().await.unwrap();
    daemon.hears_events().await;
    push(&rig).await;
    rig.until_all_are_known(10).await;
    rig.until_done(10).await;
    rig.each_ran_once(10).await;
}

#[tokio::test]
async fn an_entry_for_an_exact_number_of_rounds_is_never_early() {
    let rig = WheelRig::new("").await;
    let _daemon = rig.turning().await;
    let began = rig.now_ms().await;
    let mut pushed = Vec::new();
    // By the clock of the program, the slot is that of the present second; some clocks are ahead by up to 0.2 s.
    for number in 0..400 {
        let now = rig.now_ms().await;
        let ahead = number % 3 * 100;
        let second = (now + ahead) / 1_000;
        rig.push(second % 3_600, &number.to_string(), 23).await;
        pushed.push(second);
    }
    assert!(rig.now_ms().await - began < 60_000);
    rig.until_rows(400).await;
    for (number, second) in pushed.into_iter().enumerate() {
        let due = format!(
            "SELECT CAST(MIN(end_time) AS SIGNED) FROM tb_time_limit_task WHERE payload LIKE '{{\"uid\":\"{number}\"%'"
        );
        let early = second + 24 * 3_600 - rig.number(due).await;
        assert!(early <= 0, "{number}: {early} s early");
    }
}

#[tokio::test]
async fn entries_whose_visit_was_missed_since_the_old_timer_stopped_run_at_once() {
    let rig = WheelRig::new("").await;
    let now = rig.now_ms().await;
    let second = now / 1_000;
    for ahead in 1..=5 {
        rig.push((second + ahead) % 3_600, &ahead.to_string(), 0)
            .await;
    }
    // What was visited before it stopped waits for its round.
    rig.push((second - 2) % 3_600, "before", 0).await;
    // Redis must count them as unused since before their visits.
    rig.until_clock(UnixMs((second + 9) * 1_000)).await;
    let mut config = rig.config();
    config.wheel.stopped_at = Some(UnixMs(now));
    let _daemon = Daemon::start(&config, handlers());
    rig.until_rows(6).await;
    let ahead = rig
        .number("SELECT COUNT(*) FROM tb_time_limit_task WHERE end_time > UNIX_TIMESTAMP() + 3000");
    // The list of the first visit was used too shortly before it to tell.
    assert!((1..=4).contains(&ahead.await));
    let done = 6 - rig
        .number("SELECT COUNT(*) FROM tb_time_limit_task WHERE end_time > UNIX_TIMESTAMP() + 3000")
        .await;
    rig.until_done(done as usize).await;
    let ran: BTreeSet<i64> = rig
        .runs()
        .await
        .iter()
        .map(|run| run.due_ms / 1_000 - second)
        .collect();
    assert!(ran.contains(&5) && ran.contains(&4), "{ran:?}");
}
