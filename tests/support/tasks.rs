//! Tasks and their keys.

use lapsed::client::Receipt;
use lapsed::{Due, Task, TaskClient, TaskKey, UnixMs};

pub fn key(text: &str) -> TaskKey {
    TaskKey::parse(text).unwrap()
}

/// Creates a task that falls due after `delay_ms`.
pub async fn create(tasks: &TaskClient, name: &str, delay_ms: i64) -> Receipt {
    let due = Due::after_ms(delay_ms).unwrap();
    tasks.create(key(name), due).await.unwrap()
}

/// Creates the tasks `{prefix}0`, `{prefix}1`, .. in one statement. The first falls due `first_ms` from now, each other
/// `apart_ms` after the one before.
pub async fn create_many(
    tasks: &TaskClient,
    prefix: &str,
    count: i64,
    first_ms: i64,
    apart_ms: i64,
) -> Vec<Receipt> {
    let now = tasks.now().await.unwrap();
    let many = (0..count).map(|number| {
        let due = UnixMs(now.0 + first_ms + number * apart_ms);
        let task = Task::from(key(&format!("{prefix}{number}")));
        (task, Due::at(due).unwrap())
    });
    tasks.create_many(many.collect()).await.unwrap()
}
