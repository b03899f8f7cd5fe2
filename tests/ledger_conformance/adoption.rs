//! Rows written on behalf of keys that a program armed itself.

use lapsed::ledger::{
    Adopted, Arming, Catalog, Foundling, Ledger, NewTask, Ruling, Settled, Standing,
};
use lapsed::task::{Origin, State, TaskKey, UnixMs};

use crate::rig::{
    LEASE, bury, cancel, claim, claim_due, create, create_at, in_ms, key, pass, record, retry_at,
    settle, standing,
};

rules! {
    a_key_without_a_row_is_adopted_once
    adopting_over_a_row_that_changed_meanwhile_writes_nothing
    an_adopted_move_keeps_what_belongs_to_the_task_and_begins_its_counters_anew
    adopting_during_a_run_supersedes_that_run
    a_finished_task_that_is_adopted_begins_anew
    only_an_adopted_task_that_is_pending_and_not_about_to_fall_due_is_withdrawn
    creating_over_an_adopted_task_makes_it_the_programs
}

pub async fn adopt(
    ledger: &impl Ledger,
    key: &TaskKey,
    due: UnixMs,
    over: Option<Standing>,
) -> Adopted {
    let key = key.clone();
    let found = Foundling { key, due, over };
    ledger.adopt(&[found]).await.unwrap().remove(0)
}

pub fn written(adopted: Adopted) -> Arming {
    match adopted {
        Adopted::Written(arming) => arming,
        other => panic!("expected it to be written, found {other:?}"),
    }
}

async fn a_key_without_a_row_is_adopted_once(ledger: &(impl Ledger + Catalog)) {
    let rule = "a_key_without_a_row_is_adopted_once";
    let due = in_ms(ledger, 60_000).await;
    let keys = [key(rule, 1), key(rule, 2), key(rule, 3)];
    let found = keys.clone().map(|key| Foundling {
        key,
        due,
        over: None,
    });
    let armings: Vec<Arming> = ledger
        .adopt(&found)
        .await
        .unwrap()
        .into_iter()
        .map(written)
        .collect();
    for (key, arming) in keys.iter().zip(armings) {
        let row = standing(ledger, key).await.unwrap();
        assert_eq!((row.arming, row.state), (arming, State::Pending));
        assert_eq!((row.arming.due, row.origin), (due, Origin::Key));
        assert!(record(ledger, key).await.adopted);
    }
    let again = adopt(ledger, &keys[0], in_ms(ledger, 90_000).await, None).await;
    assert_eq!(again, Adopted::Overtaken);
    assert_eq!(standing(ledger, &keys[0]).await.unwrap().arming.due, due);
}

async fn adopting_over_a_row_that_changed_meanwhile_writes_nothing(
    ledger: &(impl Ledger + Catalog),
) {
    let rule = "adopting_over_a_row_that_changed_meanwhile_writes_nothing";
    let later = in_ms(ledger, 90_000).await;
    // Moved, cancelled, and claimed since it was seen.
    let moved = key(rule, "moved");
    let cancelled = key(rule, "cancelled");
    let claimed = key(rule, "claimed");
    for (key, delay_ms) in [(&moved, 60_000), (&cancelled, 60_000), (&claimed, -10)] {
        create(ledger, key, delay_ms).await;
    }
    let mut seen = Vec::new();
    for key in [&moved, &cancelled, &claimed] {
        seen.push(standing(ledger, key).await.unwrap());
    }
    ledger
        .reschedule(&moved, in_ms(ledger, 70_000).await)
        .await
        .unwrap();
    cancel(ledger, &cancelled).await;
    assert!(claim(ledger, seen[2].arming, LEASE).await.is_some());
    let running = standing(ledger, &claimed).await.unwrap();
    cancel(ledger, &claimed).await;
    for (key, over) in [&moved, &cancelled, &claimed, &claimed]
        .into_iter()
        .zip(seen.into_iter().chain([running]))
    {
        assert_eq!(
            adopt(ledger, key, later, Some(over)).await,
            Adopted::Overtaken,
            "{key}"
        );
        assert_ne!(standing(ledger, key).await.unwrap().arming.due, later);
    }
}

async fn an_adopted_move_keeps_what_belongs_to_the_task_and_begins_its_counters_anew(
    ledger: &(impl Ledger + Catalog),
) {
    let key = key("an_adopted_move_keeps_what_belongs_to_the_task", 1);
    let task = NewTask {
        payload: Some("{}".into()),
        tag: Some("tag".into()),
        max_attempts: Some(3),
        ..NewTask::new(key.clone(), in_ms(ledger, -10).await)
    };
    ledger.create(&[task]).await.unwrap();
    let seen = standing(ledger, &key).await.unwrap();
    let claim = claim(ledger, seen.arming, LEASE).await.unwrap();
    let at = in_ms(ledger, 60_000).await;
    settle(ledger, &claim, retry_at(at)).await;
    let waiting = standing(ledger, &key).await.unwrap();
    assert_eq!(waiting.state, State::Waiting);
    let due = in_ms(ledger, 30_000).await;
    let arming = written(adopt(ledger, &key, due, Some(waiting)).await);
    assert_eq!((arming.row, arming.due), (seen.arming.row, due));
    let record = record(ledger, &key).await;
    assert_eq!(
        (record.state, record.due_at, record.attempt),
        (State::Pending, due, 0)
    );
    assert_eq!(
        (record.payload.as_deref(), record.tag.as_deref()),
        (Some("{}"), Some("tag"))
    );
    assert_eq!(
        (record.max_attempts, record.last_error, record.adopted),
        (Some(3), None, true)
    );
}

async fn adopting_during_a_run_supersedes_that_run(ledger: &(impl Ledger + Catalog)) {
    let key = key("adopting_during_a_run_supersedes_that_run", 1);
    let run = claim_due(ledger, &key, LEASE).await;
    let running = standing(ledger, &key).await.unwrap();
    let arming = written(adopt(ledger, &key, in_ms(ledger, 5).await, Some(running)).await);
    pass(ledger, arming.due).await;
    assert!(
        claim(ledger, arming, LEASE).await.is_none(),
        "its lease holds"
    );
    assert_eq!(
        settle(ledger, &run, Ruling::Complete).await,
        Settled::Superseded
    );
    assert!(claim(ledger, arming, LEASE).await.is_some());
}

async fn a_finished_task_that_is_adopted_begins_anew(ledger: &(impl Ledger + Catalog)) {
    let rule = "a_finished_task_that_is_adopted_begins_anew";
    let keys = [key(rule, "done"), key(rule, "dead"), key(rule, "cancelled")];
    for (key, state) in keys
        .iter()
        .zip([State::Done, State::Dead, State::Cancelled])
    {
        let payload = Some("{}".into());
        let task = NewTask {
            payload,
            ..NewTask::new(key.clone(), in_ms(ledger, -10).await)
        };
        ledger.create(&[task]).await.unwrap();
        if state == State::Cancelled {
            cancel(ledger, key).await;
        } else {
            let seen = standing(ledger, key).await.unwrap();
            let run = claim(ledger, seen.arming, LEASE).await.unwrap();
            let ruling = match state {
                State::Done => Ruling::Complete,
                _ => bury(),
            };
            settle(ledger, &run, ruling).await;
        }
        let finished = standing(ledger, key).await.unwrap();
        assert_eq!(finished.state, state);
        let due = in_ms(ledger, 60_000).await;
        written(adopt(ledger, key, due, Some(finished)).await);
        let record = record(ledger, key).await;
        assert_eq!(
            (record.state, record.due, record.attempt),
            (State::Pending, due, 0)
        );
        assert_eq!(
            (record.payload, record.finished, record.last_error),
            (None, None, None)
        );
    }
}

async fn only_an_adopted_task_that_is_pending_and_not_about_to_fall_due_is_withdrawn(
    ledger: &(impl Ledger + Catalog),
) {
    let rule = "only_an_adopted_task_is_withdrawn";
    let far = in_ms(ledger, 60_000).await;
    let made = key(rule, "made");
    let made = create_at(ledger, &made, far).await.arming;
    assert!(!ledger.withdraw(made).await.unwrap(), "a program made it");

    let soon = written(adopt(ledger, &key(rule, "soon"), in_ms(ledger, 900).await, None).await);
    assert!(!ledger.withdraw(soon).await.unwrap(), "it may have expired");

    let pending = key(rule, "pending");
    let arming = written(adopt(ledger, &pending, far, None).await);
    let older = Arming {
        due: UnixMs(far.0 - 1),
        ..arming
    };
    assert!(!ledger.withdraw(older).await.unwrap(), "another arming");
    assert!(ledger.withdraw(arming).await.unwrap());
    assert!(!ledger.withdraw(arming).await.unwrap(), "once");
    let row = standing(ledger, &pending).await.unwrap();
    assert_eq!(
        (row.state, row.origin),
        (State::Cancelled, Origin::DeletedKey)
    );
    let again = written(adopt(ledger, &pending, far, Some(row)).await);
    assert_eq!(again, arming);
    let row = standing(ledger, &pending).await.unwrap();
    assert_eq!((row.state, row.origin), (State::Pending, Origin::Key));
}

async fn creating_over_an_adopted_task_makes_it_the_programs(ledger: &(impl Ledger + Catalog)) {
    let rule = "creating_over_an_adopted_task_makes_it_the_programs";
    let key = key(rule, 1);
    written(adopt(ledger, &key, in_ms(ledger, 60_000).await, None).await);
    create(ledger, &key, 70_000).await;
    assert_eq!(standing(ledger, &key).await.unwrap().origin, Origin::Row);
}
