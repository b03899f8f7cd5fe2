//! Keys that programs delete while their slot moves, and slots that are emptied or taken by force.

use lapsed::task::State;
use lapsed_sandbox::PrivateCluster;

use crate::cluster::daemon_on;
use crate::cluster::keys::{
    Client, Moving, has_atomic_moves, id, migrate_at_once, slot_of, until_owned,
};
use crate::support::daemon::Daemon;
use crate::support::not_tried::not_tried;
use crate::support::rig::Rig;
use crate::support::wait::until;

const EVENTS: &str = "lapsed_redis_events_total";

/// A name in the slot of all of them.
fn name(number: usize) -> String {
    format!("Job@record@{{moved}}@{number}")
}

/// Two masters, and bare keys of one slot that are adopted.
struct Slot {
    rig: Rig,
    cluster: PrivateCluster,
    daemon: Daemon,
    client: Client,
    slot: u16,
    from: usize,
    to: usize,
}

impl Slot {
    async fn with_keys(count: usize) -> Self {
        let rig = Rig::new("").await;
        let cluster = PrivateCluster::start(2, 0).await.unwrap();
        let daemon = daemon_on(&rig, &cluster).await;
        let slot = slot_of(&name(0));
        let (from, to) = if slot < 8_192 { (0, 1) } else { (1, 0) };
        let mut client = Client::default();
        for number in 0..count {
            let () = client
                .ask(&cluster, &["SETEX", &name(number), "600", ""])
                .await;
        }
        for number in 0..count {
            rig.until_adopted(&name(number)).await;
        }
        Self {
            rig,
            cluster,
            daemon,
            client,
            slot,
            from,
            to,
        }
    }

    async fn delete(&mut self, number: usize) {
        let gone: i64 = self
            .client
            .ask(&self.cluster, &["DEL", &name(number)])
            .await;
        assert_eq!(gone, 1, "{number}");
    }

    /// The daemon has heard so many events of the slot since it had heard `before`.
    async fn heard(&self, before: f64, events: f64) {
        self.daemon
            .until_counted(EVENTS, |count| count >= before + events)
            .await;
    }

    async fn are_pending(&self, numbers: std::ops::Range<usize>) {
        for number in numbers {
            let state = self.rig.state(&name(number)).await;
            assert_eq!(state, State::Pending, "{number}");
        }
    }

    /// What the node at this place has published so far is judged: a deletion of another slot of it is.
    async fn judged(&mut self, place: usize) {
        let other = (0..).map(|salt| format!("Job@record@other@{salt}"));
        let is_of = |name: &String| (slot_of(name) < 8_192) == (place == 0);
        let mut other = other.filter(|name| is_of(name) && slot_of(name) != self.slot);
        let other = other.next().expect("each node has other slots");
        let set = ["SETEX", &other, "600", ""];
        let () = self.client.ask(&self.cluster, &set).await;
        self.rig.until_adopted(&other).await;
        self.rig.until_state(&other, State::Pending).await;
        let _: i64 = self.client.ask(&self.cluster, &["DEL", &other]).await;
        self.rig.until_state(&other, State::Cancelled).await;
    }

    /// Each of these keys is there.
    async fn until_armed(&mut self, numbers: std::ops::Range<usize>) {
        for number in numbers {
            let client = tokio::sync::Mutex::new(&mut self.client);
            until(format!("`{}` is armed", name(number)), async || {
                let mut client = client.lock().await;
                let found: i64 = client.ask(&self.cluster, &["EXISTS", &name(number)]).await;
                found == 1
            })
            .await;
        }
    }
}

#[tokio::test]
async fn a_deletion_is_heard_while_the_slot_moves() {
    let mut test = Slot::with_keys(8).await;
    let mut moving = Moving::begin(&test.cluster, test.slot, test.from, test.to).await;
    let port = test.cluster.nodes[test.to].port();
    let half: Vec<String> = (0..4).map(name).collect();
    let before = test.daemon.metric(EVENTS);
    moving.hand_over(&half, port).await;
    // One `del` for each, at the node that has handed them over.
    test.heard(before, 4.0).await;
    test.judged(test.from).await;
    test.are_pending(0..8).await;

    // One has moved, the other one has not.
    test.delete(1).await;
    test.delete(5).await;
    for number in [1, 5] {
        test.rig.until_state(&name(number), State::Cancelled).await;
    }
    let rest: Vec<String> = [4, 6, 7].map(name).into();
    moving.hand_over(&rest, port).await;
    moving.end().await;
    until_owned(&test.cluster, test.slot, test.to).await;
    test.are_pending(2..5).await;
    test.are_pending(6..8).await;
}

#[tokio::test]
async fn a_master_that_loses_a_slot_with_its_keys_cancels_nothing() {
    let mut test = Slot::with_keys(6).await;
    let created = "Job@record@{moved}@created";
    test.daemon.create(created, 600_000).await;
    // The other one takes the slot by force. What its former master has of it is dropped.
    let target = id(&test.cluster, test.to).await;
    let slot = test.slot.to_string();
    let taken = ["CLUSTER", "SETSLOT", &slot, "NODE", &target];
    let () = test.cluster.ask(test.to, &taken).await.unwrap();
    let _: redis::Value = test
        .cluster
        .ask(test.to, &["CLUSTER", "BUMPEPOCH"])
        .await
        .unwrap();
    until_owned(&test.cluster, test.slot, test.to).await;
    test.until_armed(0..6).await;
    test.judged(test.from).await;
    test.are_pending(0..6).await;
    assert_eq!(test.rig.state(created).await, State::Pending);
}

#[tokio::test]
async fn a_slot_that_is_flushed_cancels_what_was_adopted_only_at_its_master() {
    let mut test = Slot::with_keys(6).await;
    if !has_atomic_moves(&test.cluster).await {
        let what = "`CLUSTER FLUSHSLOT`: it needs Valkey 9, see `scripts/newer-servers` in CONTRIBUTING.md";
        return not_tried(
            "a_slot_that_is_flushed_cancels_what_was_adopted_only_at_its_master",
            what,
        );
    }
    let created = "Job@record@{moved}@created";
    test.daemon.create(created, 600_000).await;
    let slot = test.slot.to_string();
    let flush = ["CLUSTER", "FLUSHSLOT", &slot, "SYNC"];

    // At the master that serves the slot it is a deletion of each key.
    let () = test.cluster.ask(test.from, &flush).await.unwrap();
    for number in 0..6 {
        test.rig.until_state(&name(number), State::Cancelled).await;
    }
    assert_eq!(test.rig.state(created).await, State::Pending);
    for number in 0..6 {
        let () = test
            .client
            .ask(&test.cluster, &["SETEX", &name(number), "600", ""])
            .await;
    }
    for number in 0..6 {
        test.rig.until_state(&name(number), State::Pending).await;
    }
    test.judged(test.from).await;

    // A slot that has moved at once leaves nothing behind.
    migrate_at_once(&test.cluster, &[test.slot], test.from, test.to).await;
    until_owned(&test.cluster, test.slot, test.to).await;
    let () = test.cluster.ask(test.from, &flush).await.unwrap();
    test.until_armed(0..6).await;
    test.judged(test.from).await;
    test.are_pending(0..6).await;

    // A former master that still has keys of the slot: both forget whose it is, and the other one takes it.
    for place in [test.from, test.to] {
        let forget = ["CLUSTER", "DELSLOTS", &slot];
        let () = test.cluster.ask(place, &forget).await.unwrap();
    }
    let take = ["CLUSTER", "ADDSLOTS", &slot];
    let () = test.cluster.ask(test.from, &take).await.unwrap();
    let left = ["CLUSTER", "COUNTKEYSINSLOT", &slot];
    let left: i64 = test.cluster.ask(test.to, &left).await.unwrap();
    assert!(left >= 6, "{left}");
    let before = test.daemon.metric(EVENTS);
    let () = test.cluster.ask(test.to, &flush).await.unwrap();
    test.heard(before, 6.0).await;
    until_owned(&test.cluster, test.slot, test.from).await;
    test.judged(test.to).await;
    test.are_pending(0..6).await;
    assert_eq!(test.rig.state(created).await, State::Pending);
}
