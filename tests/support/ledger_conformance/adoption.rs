//! Rows written on behalf of keys that a program armed itself.

use lapsed::ledger::{Adopted, AdoptionRequest, Ledger, Lookup, NewTask, Settled};
use lapsed::task::{Arming, Contents, Origin, State, TaskKey, UnixMs, Verdict};

use crate::ledger_conformance::rig::{
    LEASE, bury, cancel, claim, claim_due, create, create_at, in_ms, key, lookup, pass, record,
    retry_at, settle,
};

rules! {
    a_key_without_a_row_is_adopted_once
    adopting_over_a_row_that_changed_meanwhile_writes_nothing
    an_adopted_move_keeps_what_belongs_to_the_task_and_begins_its_counters_anew
    adopting_during_a_run_supersedes_that_run
    a_finished_task_that_is_adopted_begins_anew
    every_change_of_an_arming_is_stamped
    a_key_of_ours_with_another_expiry_leaves_the_task_what_it_was
}

pub async fn adopt(
    ledger: &impl Ledger,
    key: &TaskKey,
    due: UnixMs,
    over: Option<Lookup>,
) -> Adopted {
    let found = AdoptionRequest {
        key: key.clone(),
        due,
        heard: ledger.sync_clock().await.unwrap(),
        from_key: true,
        is_entry: false,
        over,
        payload: None,
    };
    ledger.adopt(&[found]).await.unwrap().remove(0)
}

pub fn written(adopted: Adopted) -> Arming {
    match adopted {
        Adopted::Written(arming) => arming,
        other => panic!("expected it to be written, found {other:?}"),
    }
}

async fn a_key_without_a_row_is_adopted_once(ledger: &impl Ledger) {
    let rule = "a_key_without_a_row_is_adopted_once";
    let due = in_ms(ledger, 60_000).await;
    let keys = [key(rule, 1), key(rule, 2), key(rule, 3)];
    let found = keys.clone().map(|key| AdoptionRequest {
        key,
        due,
        heard: due,
        from_key: true,
        is_entry: false,
        over: None,
        payload: None,
    });
    let armings: Vec<Arming> = ledger
        .adopt(&found)
        .await
        .unwrap()
        .into_iter()
        .map(written)
        .collect();
    for (key, arming) in keys.iter().zip(armings) {
        let row = lookup(ledger, key).await.unwrap();
        assert_eq!((row.arming, row.state), (arming, State::Pending));
        assert_eq!((row.arming.due, row.origin), (due, Origin::Key));
        assert!(record(ledger, key).await.adopted);
    }
    let again = adopt(ledger, &keys[0], in_ms(ledger, 90_000).await, None).await;
    assert_eq!(again, Adopted::Overtaken);
    assert_eq!(lookup(ledger, &keys[0]).await.unwrap().arming.due, due);
}

async fn adopting_over_a_row_that_changed_meanwhile_writes_nothing(ledger: &impl Ledger) {
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
        seen.push(lookup(ledger, key).await.unwrap());
    }
    ledger
        .reschedule(&moved, in_ms(ledger, 70_000).await)
        .await
        .unwrap();
    cancel(ledger, &cancelled).await;
    assert!(claim(ledger, seen[2].arming, LEASE).await.is_some());
    let running = lookup(ledger, &claimed).await.unwrap();
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
        assert_ne!(lookup(ledger, key).await.unwrap().arming.due, later);
    }
}

async fn an_adopted_move_keeps_what_belongs_to_the_task_and_begins_its_counters_anew(
    ledger: &impl Ledger,
) {
    let key = key("an_adopted_move_keeps_what_belongs_to_the_task", 1);
    let task = NewTask {
        contents: Contents {
            payload: Some("{}".into()),
            tag: Some("tag".into()),
            max_attempts: Some(3),
        },
        ..NewTask::new(key.clone(), in_ms(ledger, -10).await)
    };
    ledger.create(&[task]).await.unwrap();
    let seen = lookup(ledger, &key).await.unwrap();
    let claim = claim(ledger, seen.arming, LEASE).await.unwrap();
    let at = in_ms(ledger, 60_000).await;
    settle(ledger, &claim, retry_at(at)).await;
    let waiting = lookup(ledger, &key).await.unwrap();
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

async fn adopting_during_a_run_supersedes_that_run(ledger: &impl Ledger) {
    let key = key("adopting_during_a_run_supersedes_that_run", 1);
    let run = claim_due(ledger, &key, LEASE).await;
    let running = lookup(ledger, &key).await.unwrap();
    let arming = written(adopt(ledger, &key, in_ms(ledger, 5).await, Some(running)).await);
    pass(ledger, arming.due).await;
    assert!(
        claim(ledger, arming, LEASE).await.is_none(),
        "its lease holds"
    );
    assert_eq!(
        settle(ledger, &run, Verdict::Complete).await,
        Settled::Superseded
    );
    assert!(claim(ledger, arming, LEASE).await.is_some());
}

async fn a_finished_task_that_is_adopted_begins_anew(ledger: &impl Ledger) {
    let rule = "a_finished_task_that_is_adopted_begins_anew";
    let keys = [key(rule, "done"), key(rule, "dead"), key(rule, "cancelled")];
    for (key, state) in keys
        .iter()
        .zip([State::Done, State::Dead, State::Cancelled])
    {
        let payload = Some("{}".into());
        let task = NewTask {
            contents: Contents {
                payload,
                ..Contents::default()
            },
            ..NewTask::new(key.clone(), in_ms(ledger, -10).await)
        };
        ledger.create(&[task]).await.unwrap();
        if state == State::Cancelled {
            cancel(ledger, key).await;
        } else {
            let seen = lookup(ledger, key).await.unwrap();
            let run = claim(ledger, seen.arming, LEASE).await.unwrap();
            let verdict = match state {
                State::Done => Verdict::Complete,
                _ => bury(),
            };
            settle(ledger, &run, verdict).await;
        }
        let finished = lookup(ledger, key).await.unwrap();
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

/// The last word on a row is that of whoever changed its arming; claims and ends of runs are none.
async fn every_change_of_an_arming_is_stamped(ledger: &impl Ledger) {
    let rule = "every_change_of_an_arming_is_stamped";
    let key = key(rule, 1);
    let mut last = UnixMs(0);
    let mut is_stamped = async |what: &str, stamped: bool| {
        let row = lookup(ledger, &key).await.unwrap();
        let changed = row.stamp.changed;
        assert!(changed >= row.stamp.created, "{what}");
        match stamped {
            true => assert!(changed > last, "{what}"),
            false => assert_eq!(changed, last, "{what}"),
        }
        last = changed;
        pass(ledger, changed).await;
        row
    };
    create(ledger, &key, 60_000).await;
    let row = is_stamped("created", true).await;
    create_at(ledger, &key, row.arming.due).await;
    is_stamped("created once more", true).await;
    let later = in_ms(ledger, 70_000).await;
    ledger.reschedule(&key, later).await.unwrap();
    let row = is_stamped("rescheduled", true).await;
    let heard = UnixMs(in_ms(ledger, 0).await.0);
    let found = AdoptionRequest {
        key: key.clone(),
        due: later,
        heard,
        from_key: true,
        is_entry: false,
        over: Some(row),
        payload: None,
    };
    written(ledger.adopt(&[found]).await.unwrap().remove(0));
    let row = is_stamped("adopted", true).await;
    assert_eq!((row.stamp.changed, row.stamp.created), (heard, heard));
    cancel(ledger, &key).await;
    is_stamped("cancelled", true).await;
    create(ledger, &key, 60_000).await;
    is_stamped("created anew", true).await;
    ledger.run_now(&key).await.unwrap();
    let row = is_stamped("run now", true).await;
    pass(ledger, row.arming.due).await;
    let run = claim(ledger, row.arming, LEASE).await.unwrap();
    is_stamped("claimed", false).await;
    settle(ledger, &run, bury()).await;
    is_stamped("dead", false).await;
    ledger.redrive(&key).await.unwrap();
    let row = is_stamped("redriven", true).await;
    let run = claim(ledger, row.arming, LEASE).await.unwrap();
    cancel(ledger, &key).await;
    is_stamped("cancelled during its run", true).await;
    settle(ledger, &run, bury()).await;
    let row = is_stamped("ended as cancelled", false).await;
    assert_eq!(row.state, State::Cancelled);
    assert_eq!(row.stamp.finished, Some(row.stamp.changed));
}

async fn a_key_of_ours_with_another_expiry_leaves_the_task_what_it_was(ledger: &impl Ledger) {
    let key = key("a_key_of_ours_with_another_expiry", 1);
    create(ledger, &key, 60_000).await;
    let found = AdoptionRequest {
        key: key.clone(),
        due: in_ms(ledger, 5_000).await,
        heard: in_ms(ledger, 0).await,
        from_key: false,
        is_entry: false,
        over: lookup(ledger, &key).await,
        payload: None,
    };
    let arming = written(ledger.adopt(&[found]).await.unwrap().remove(0));
    let row = lookup(ledger, &key).await.unwrap();
    assert_eq!((row.arming, row.origin), (arming, Origin::Row));
}
