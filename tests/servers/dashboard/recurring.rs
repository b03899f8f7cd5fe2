//! The page of recurring tasks.

use std::time::Duration;

use lapsed::{Recurrence, Task, TaskClient};

use crate::dashboard::rig::{Pages, attributes};

const BY_PAGE: &str = "There is more than one page";

/// The numbers of the tasks that a page shows, in its order.
fn numbers(body: &str) -> Vec<u64> {
    let links = attributes(body, "href");
    let keys = links
        .iter()
        .filter_map(|link| link.strip_prefix("/task?key=Report%40daily%40"));
    keys.map(|number| number.parse().unwrap()).collect()
}

#[tokio::test]
async fn each_page_of_recurring_tasks_is_sorted_by_due_time_and_begins_with_the_oldest_tasks() {
    let pages = Pages::start("").await;
    let tasks: TaskClient = pages.rig.client().await.into();
    let empty = pages.body("/recurring").await;
    assert!(empty.contains("No task recurs") && !empty.contains(BY_PAGE));
    // The later it is created, the earlier it is due.
    for number in 0..60 {
        let task = Task::new("Report", "daily", [number]).unwrap();
        let every = Recurrence::every(Duration::from_secs(3_600 * (100 - number))).unwrap();
        tasks.create_recurring(task, every).await.unwrap();
        if number == 20 {
            let one = pages.body("/recurring").await;
            assert_eq!(numbers(&one), (0..=20).rev().collect::<Vec<_>>());
            assert!(!one.contains(BY_PAGE), "{one}");
        }
    }
    tasks.cancel("Report@daily@3").await.unwrap();

    let first = pages.body("/recurring").await;
    let oldest = (0..=50).rev().filter(|number| *number != 3);
    assert_eq!(numbers(&first), oldest.collect::<Vec<_>>());
    let (_, next) = first
        .split_once("rel=\"next\" href=\"")
        .expect("a next page");
    let next = next.split('"').next().unwrap().replace("&#38;", "&");
    let second = pages.body(&next).await;
    assert_eq!(numbers(&second), (51..60).rev().collect::<Vec<_>>());
    assert!(first.contains(BY_PAGE) && second.contains(BY_PAGE));

    // A page that an earlier version has linked.
    let earlier = pages
        .body("/recurring?cursor=due.0.0.1763750000000.42")
        .await;
    assert!(
        earlier.contains("the cursor belongs to a list with other filters"),
        "{earlier}"
    );
}
