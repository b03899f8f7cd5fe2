//! What producers do with their keys.

use std::path::PathBuf;
use std::process::Stdio;

use lapsed::client::ClientError;
use lapsed::ledger::{CancelAnswer, RescheduleAnswer};
use lapsed::task::State;
use lapsed::{Due, Task, TaskClient, TaskKey, UnixMs};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use sqlx::MySqlPool;
use tokio::time::sleep;

use crate::clients::{RedisClient, Stories, answer};
use crate::history::{Ms, Source, Step, Story};
use crate::target::now;

/// An operation so near to a due time may meet the run.
const NEAR_MS: Ms = 50;

/// Draws for one key.
pub struct Dice(StdRng);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(StdRng::seed_from_u64(seed))
    }

    fn percent(&mut self, chance: u32) -> bool {
        self.0.random_range(0..100) < chance
    }

    fn due(&mut self) -> Ms {
        now() + self.0.random_range(100..6_000)
    }

    async fn pause(&mut self) {
        sleep(std::time::Duration::from_millis(
            self.0.random_range(0..4_000),
        ))
        .await;
    }

    /// A key that says what its run is like. So many of a hundred are for workers.
    pub fn key(&mut self, name: &str, pulled: u32) -> String {
        let method = match self.0.random_range(0..1_000) {
            _ if self.percent(pulled) => "Pull@take",
            0..50 => "Hook@flaky",
            50..55 => "Hook@slow",
            55..85 => "Prog@run",
            _ => "Hook@ok",
        };
        format!("{method}@{name}")
    }
}

fn task(key: &str) -> Task {
    Task::from(TaskKey::parse(key).expect("a key of ours"))
}

fn at(due: Ms) -> Due {
    Due::at(UnixMs(due)).expect("it is after 1970")
}

/// A task by the Rust client: some are moved, created again, cancelled and looked at.
pub async fn by_client(client: TaskClient, key: String, mut dice: Dice, stories: Stories) {
    let mut story = Story::new(Source::Client);
    let due = dice.due();
    if create(&client, &key, due, &mut story).await {
        look(&client, &key, due, &mut story).await;
        if dice.percent(12) {
            dice.pause().await;
            create(&client, &key, dice.due().max(due + 1), &mut story).await;
        } else if dice.percent(8) {
            dice.pause().await;
            reschedule(&client, &key, due, dice.due().max(due + 1), &mut story).await;
        } else if dice.percent(14) {
            dice.pause().await;
            cancel(&client, &key, due, &mut story).await;
        }
    }
    stories.add(key, story);
}

/// False without an answer.
async fn create(client: &TaskClient, key: &str, due: Ms, story: &mut Story) -> bool {
    let asked = now();
    let receipt = answer(client.create(task(key), at(due))).await;
    let busy = receipt.as_ref().is_none_or(lapsed::Receipt::older_run);
    story.add(asked, receipt.is_some().then(now), Step::Arm { due, busy });
    if let Some(receipt) = &receipt
        && receipt.due().0 != due
    {
        story
            .wrong
            .push(format!("created for {due}, the receipt says {receipt:?}"));
    }
    receipt.is_some()
}

async fn look(client: &TaskClient, key: &str, due: Ms, story: &mut Story) {
    let key = TaskKey::parse(key).expect("a key of ours");
    let Some(found) = answer(client.find(key)).await else {
        return;
    };
    let is_right = found.as_ref().is_some_and(|record| {
        record.due.0 == due && (record.state == State::Pending || now() >= due)
    });
    if !is_right {
        story.wrong.push(format!("found {found:?}"));
    }
}

async fn reschedule(client: &TaskClient, key: &str, due: Ms, to: Ms, story: &mut Story) {
    let asked = now();
    let key = TaskKey::parse(key).expect("a key of ours");
    let step = Step::Arm {
        due: to,
        busy: false,
    };
    match answer(client.reschedule(key, at(to))).await {
        None => story.add(
            asked,
            None,
            Step::Arm {
                due: to,
                busy: true,
            },
        ),
        Some(RescheduleAnswer::Moved(_)) => story.add(asked, Some(now()), step),
        Some(RescheduleAnswer::Running | RescheduleAnswer::Finished(State::Done))
            if now() >= due => {}
        Some(other) => story
            .wrong
            .push(format!("moved from {due} to {to}: {other:?}")),
    }
}

async fn cancel(client: &TaskClient, key: &str, due: Ms, story: &mut Story) {
    let asked = now();
    let key = TaskKey::parse(key).expect("a key of ours");
    match answer(client.cancel(key)).await {
        None => story.add(asked, None, Step::Cancel { busy: true }),
        Some(CancelAnswer::Cancelled) => {
            story.add(asked, Some(now()), Step::Cancel { busy: false })
        }
        Some(CancelAnswer::Running) if now() >= due => {
            story.add(asked, Some(now()), Step::Cancel { busy: true });
        }
        Some(CancelAnswer::Finished(State::Done)) if now() >= due => {}
        Some(other) => story.wrong.push(format!("cancelled: {other:?}")),
    }
}

/// Many tasks in one call.
pub async fn in_bulk(client: TaskClient, keys: Vec<String>, mut dice: Dice, stories: Stories) {
    let tasks: Vec<(String, Ms)> = keys.into_iter().map(|key| (key, dice.due())).collect();
    let asked = now();
    let created = client.create_many(
        tasks
            .iter()
            .map(|(key, due)| (task(key), at(*due)))
            .collect(),
    );
    let receipts: Option<Vec<lapsed::Receipt>> = answer::<_, ClientError>(created).await;
    for (key, due) in tasks {
        let mut story = Story::new(Source::Client);
        story.add(
            asked,
            receipts.is_some().then(now),
            Step::Arm { due, busy: false },
        );
        stories.add(key, story);
    }
}

/// Rows by SQL, as programs write them that know only the first columns.
pub async fn by_sql(sql: MySqlPool, keys: Vec<String>, mut dice: Dice, stories: Stories) {
    let rows: Vec<(String, Ms)> = keys.into_iter().map(|key| (key, dice.due())).collect();
    let asked = now();
    let values: Vec<String> = rows
        .iter()
        .map(|(key, due)| format!("('{key}', 0, {asked} / 1000, {due} / 1000, 0)"))
        .collect();
    let insert = format!(
        "INSERT INTO tb_time_limit_task (`key`, status, start_time, end_time, sts) VALUES {}",
        values.join(", ")
    );
    let inserted = answer(sqlx::raw_sql(sqlx::AssertSqlSafe(insert)).execute(&sql)).await;
    for (key, due) in rows {
        let mut story = Story::new(Source::Sql);
        story.add(
            asked,
            inserted.is_some().then(now),
            Step::Arm { due, busy: false },
        );
        stories.add(key, story);
    }
}

/// A key in plain Redis.
pub async fn by_redis(redis: RedisClient, key: String, mut dice: Dice, stories: Stories) {
    let (asked, due) = (now(), dice.due() + 1_000);
    let mut set = redis::cmd("SET");
    set.arg(&key).arg("").arg("PXAT").arg(due);
    let answer: Option<String> = redis.ask(&set).await;
    let mut story = Story::new(Source::Redis);
    story.add(
        asked,
        answer.is_some().then(now),
        Step::Arm { due, busy: false },
    );
    stories.add(key, story);
}

/// A key through the RESP server: some are looked at, moved and deleted.
pub async fn by_resp(redis: RedisClient, key: String, mut dice: Dice, stories: Stories) {
    let mut story = Story::new(Source::Resp);
    let due = dice.due();
    if set(&redis, &key, due, &mut story).await {
        // Until the retry, if it has failed.
        if dice.percent(20) && !key.contains("@flaky@") {
            let before = now();
            let left: Option<Ms> = redis.ask(redis::cmd("PTTL").arg(&key)).await;
            let (most, least) = (due - before, due - now());
            if let Some(left) = left
                && (left > most.max(0) + 1 || least > 0 && left < least - 1)
            {
                story
                    .wrong
                    .push(format!("PTTL is {left}, expected {least} to {most}"));
            }
        }
        if dice.percent(12) {
            dice.pause().await;
            set(&redis, &key, dice.due().max(due + 1), &mut story).await;
        } else if dice.percent(12) {
            dice.pause().await;
            delete(&redis, &key, due, &mut story).await;
        }
    }
    stories.add(key, story);
}

async fn set(redis: &RedisClient, key: &str, due: Ms, story: &mut Story) -> bool {
    let asked = now();
    let mut command = redis::cmd("SET");
    command.arg(key).arg("{}").arg("PXAT").arg(due);
    let answer: Option<String> = redis.ask(&command).await;
    // The answer tells nothing of an older run.
    let busy = story
        .ops
        .iter()
        .any(|op| matches!(op.step, Step::Arm { due, .. } if now() + NEAR_MS >= due));
    story.add(asked, answer.is_some().then(now), Step::Arm { due, busy });
    answer.is_some()
}

async fn delete(redis: &RedisClient, key: &str, due: Ms, story: &mut Story) {
    let asked = now();
    let count: Option<i64> = redis.ask(redis::cmd("DEL").arg(key)).await;
    let busy = now() + NEAR_MS >= due;
    match count {
        None => story.add(asked, None, Step::Cancel { busy: true }),
        Some(1) => story.add(asked, Some(now()), Step::Cancel { busy }),
        // A task that is overdue counts as expired, and may be cancelled all the same.
        Some(0) if busy => story.add(asked, None, Step::Cancel { busy: true }),
        Some(other) => story
            .wrong
            .push(format!("DEL: {other}, and it is due at {due}")),
    }
}

/// The program `lapsed schedule`.
pub async fn by_program(
    program: PathBuf,
    config: PathBuf,
    key: String,
    mut dice: Dice,
    stories: Stories,
) {
    let (asked, due) = (now(), dice.due() + 1_000);
    let mut command = tokio::process::Command::new(program);
    command
        .arg("--config")
        .arg(config)
        .args(["schedule", &key, "--at", &UnixMs(due).to_string()]);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    let status = answer(async { command.status().await }).await;
    let mut story = Story::new(Source::Cli);
    let is_done = status.is_some_and(|status| status.success());
    story.add(asked, is_done.then(now), Step::Arm { due, busy: false });
    stories.add(key, story);
}
