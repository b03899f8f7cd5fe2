//! A daemon for tests that kill and stop it: this test binary once more, as a program.

use std::time::Duration;

use lapsed::{Engine, MysqlTask, TaskContext};

use crate::support::file_scene;
use crate::support::handlers::{handlers, take_effect, write_down};
use crate::support::process::config_of_program;

/// Besides [`handlers`]: `Job@slow@<ms>` completes with an effect that long after its start, and
/// `Job@kills` takes its daemon down.
#[tokio::test]
#[ignore = "a program for the other tests to start"]
async fn serve() {
    let config = config_of_program();
    tracing_subscriber::fmt().with_ansi(false).init();
    let mut handlers = handlers();
    handlers.on(("Job", "slow"), |task: TaskContext, ms: u64| async move {
        write_down(&task).await?;
        let mut tx = task.begin().await?;
        take_effect(&task, &mut tx).await?;
        tokio::time::sleep(Duration::from_millis(ms)).await;
        task.complete_in(tx).await
    });
    handlers.on(("Job", "kills"), |task: TaskContext| async move {
        write_down(&task).await?;
        std::process::abort();
    });
    Engine::new(config, handlers)
        .unwrap()
        .run_until(std::future::pending())
        .await
        .unwrap();
}

/// As [`serve`], with the handlers of a ledger in a file.
#[tokio::test]
#[ignore = "a program for the other tests to start"]
async fn serve_a_file() {
    let config = config_of_program();
    tracing_subscriber::fmt().with_ansi(false).init();
    Engine::new(config, file_scene::handlers())
        .unwrap()
        .run_until(std::future::pending())
        .await
        .unwrap();
}
