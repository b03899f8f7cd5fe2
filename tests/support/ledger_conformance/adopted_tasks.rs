//! What an adopted row holds.

use lapsed::ledger::{AdoptionRequest, Ledger, Lookup};
use lapsed::task::{Origin, State, TaskKey, UnixMs};

use crate::ledger_conformance::adoption::{adopt, written};
use crate::ledger_conformance::rig::{cancel, create, in_ms, key, lookup, record};

rules! {
    creating_over_an_adopted_task_makes_it_the_programs
    an_entry_brings_the_payload_of_its_task
}

async fn creating_over_an_adopted_task_makes_it_the_programs(ledger: &impl Ledger) {
    let rule = "creating_over_an_adopted_task_makes_it_the_programs";
    let key = key(rule, 1);
    written(adopt(ledger, &key, in_ms(ledger, 60_000).await, None).await);
    create(ledger, &key, 70_000).await;
    assert_eq!(lookup(ledger, &key).await.unwrap().origin, Origin::Row);
}

async fn an_entry_brings_the_payload_of_its_task(ledger: &impl Ledger) {
    let rule = "an_entry_brings_the_payload_of_its_task";
    let adopt = async |key: &TaskKey, due: UnixMs, over: Option<Lookup>, payload: Option<&str>| {
        let found = AdoptionRequest {
            key: key.clone(),
            due,
            heard: ledger.sync_clock().await.unwrap(),
            from_key: true,
            is_entry: false,
            over,
            payload: payload.map(str::to_owned),
        };
        written(ledger.adopt(&[found]).await.unwrap().remove(0))
    };
    let due = in_ms(ledger, 60_000).await;
    // Enough for one statement.
    let many = (0..9).map(|number| AdoptionRequest {
        key: key(rule, number),
        due,
        heard: due,
        from_key: true,
        is_entry: false,
        over: None,
        payload: (number > 0).then(|| number.to_string()),
    });
    let many: Vec<AdoptionRequest> = many.collect();
    for adopted in ledger.adopt(&many).await.unwrap() {
        written(adopted);
    }
    for found in many {
        assert_eq!(record(ledger, &found.key).await.payload, found.payload);
    }
    let key = key(rule, 10);
    let payload = async || record(ledger, &key).await.payload;
    adopt(&key, due, None, Some("[1]")).await;
    assert_eq!(payload().await.as_deref(), Some("[1]"));
    adopt(&key, UnixMs(due.0 + 1), lookup(ledger, &key).await, None).await;
    assert_eq!(payload().await.as_deref(), Some("[1]"), "the task stays");
    adopt(
        &key,
        UnixMs(due.0 + 2),
        lookup(ledger, &key).await,
        Some("[2]"),
    )
    .await;
    assert_eq!(payload().await.as_deref(), Some("[2]"));
    cancel(ledger, &key).await;
    adopt(&key, UnixMs(due.0 + 3), lookup(ledger, &key).await, None).await;
    assert_eq!(payload().await, None, "another task");
    assert_eq!(lookup(ledger, &key).await.unwrap().state, State::Pending);
}
