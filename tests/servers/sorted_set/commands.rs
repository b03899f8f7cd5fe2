//! The commands on tasks whose entries are in a sorted set.

use lapsed::task::State;

use super::queue::{MAPPED, Queue, due_of, seconds, with_events};
use crate::support::rig::Rig;
use crate::support::shell::Shell;

#[tokio::test]
async fn sweep_adopts_without_a_daemon() {
    let rig = Rig::new(&format!("{MAPPED}\n[[routes]]\nmatch = '.'\nlog = {{}}")).await;
    let mut queue = Queue::of(&rig).await;
    let due = seconds(&rig, 3600).await;
    for number in 0..1_200 {
        queue.add(&number.to_string(), due).await;
    }
    queue.add("now", 0).await;
    let shell = Shell::of(&rig);
    let text = shell.text(&["sweep"]);
    assert!(text.contains("adopt"), "{text}");
    for member in ["0", "1199", "now"] {
        queue.until_acknowledged(member).await;
    }
    let adopted = rig.record("Job@record@7").await;
    assert_eq!((adopted.state, adopted.due), (State::Pending, due_of(due)));
    assert_eq!(queue.members().await.len(), 1_201);
}

#[tokio::test]
async fn commands_move_and_remove_the_entry() {
    let rig = with_events(MAPPED).await;
    let _daemon = rig.listening_daemon().await;
    let mut queue = Queue::of(&rig).await;
    let due = seconds(&rig, 3600).await;
    for member in ["moved", "cancelled"] {
        queue.add(member, due).await;
        queue.until_acknowledged(member).await;
    }
    let shell = Shell::of(&rig);
    shell.text(&["cancel", "Job@record@cancelled"]);
    assert_eq!(queue.members().await, ["moved"]);
    let before = queue.score("moved").await;
    shell.text(&["reschedule", "Job@record@moved", "--in", "2h"]);
    let moved = rig.record("Job@record@moved").await.due.0 * 1000;
    assert_eq!(queue.score("moved").await, Some(moved as f64));
    assert_ne!(queue.score("moved").await, before);
    let doctor = shell.run(&["doctor"]).1;
    for part in ["has 1 entries", "heard of at once", "may run scripts"] {
        assert!(doctor.contains(part), "{part}: {doctor}");
    }
}
