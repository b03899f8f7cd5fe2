//! Making a series another one, by hand or by the configuration.

use std::time::Duration;

use lapsed::ledger::recurring::{DeclaredBy, Established, establish};
use lapsed::ledger::{
    Ledger, ListCursor, ListFilter, NewTask, RescheduleAnswer, RunNowAnswer, Settled, StateFilter,
    TaskRecord,
};
use lapsed::task::{Contents, Recurrence, State, TaskKey, UnixMs, Verdict};

use crate::ledger_conformance::rig::{
    LEASE, cancel, claim, create, key, lookup, record, retry_at, settle, state,
};
use crate::ledger_conformance::series::{go_on, hourly, recurrence, series};

rules! {
    a_series_is_written_only_over_what_was_seen
    a_series_changed_without_being_moved_keeps_its_arming
    a_configured_series_stays_as_it_is_and_is_changed_when_it_does_not_run
    a_configured_series_that_was_ended_stays_ended_until_it_is_another_one
    a_series_that_a_configuration_finds_says_so_from_then_on
    noting_that_a_configuration_wants_a_series_changes_nothing_else
    a_recurring_task_requested_again_restarts_and_is_moved_while_it_runs
    a_task_created_over_a_series_runs_once
    recurring_tasks_are_listed_in_the_order_of_their_creation
}

async fn a_series_is_written_only_over_what_was_seen(ledger: &impl Ledger) {
    let key = key("series-seen", 1);
    let arming = hourly(ledger, &key).await;
    let every = Recurrence::every(Duration::from_secs(60)).unwrap();
    let other = NewTask {
        recurrence: Some(every),
        ..NewTask::new(key.clone(), UnixMs(arming.due.0 + 60_000))
    };
    assert_eq!(
        ledger.write_series(&other, None).await.unwrap(),
        None,
        "it exists"
    );
    let seen = series(ledger, &key).await;
    let claimed = claim(ledger, arming, LEASE).await.unwrap();
    assert_eq!(
        ledger.write_series(&other, Some(&seen)).await.unwrap(),
        None,
        "it runs"
    );
    settle(ledger, &claimed, Verdict::Release).await;
    ledger
        .reschedule(&key, UnixMs(arming.due.0 + 5))
        .await
        .unwrap();
    assert_eq!(
        ledger.write_series(&other, Some(&seen)).await.unwrap(),
        None,
        "it was moved"
    );

    let seen = series(ledger, &key).await;
    let written = ledger.write_series(&other, Some(&seen)).await.unwrap();
    assert_eq!(written.map(|arming| arming.due), Some(other.due));
    assert_eq!(Some(recurrence(ledger, &key).await), other.recurrence);
    cancel(ledger, &key).await;
    assert_eq!(
        ledger.write_series(&other, Some(&seen)).await.unwrap(),
        None,
        "it is off"
    );
    let seen = series(ledger, &key).await;
    assert!(
        ledger
            .write_series(&other, Some(&seen))
            .await
            .unwrap()
            .is_some()
    );
    assert_eq!(state(ledger, &key).await, State::Pending);
}

async fn a_series_changed_without_being_moved_keeps_its_arming(ledger: &impl Ledger) {
    let key = key("series-kept", 1);
    let arming = hourly(ledger, &key).await;
    let claimed = claim(ledger, arming, LEASE).await.unwrap();
    settle(ledger, &claimed, retry_at(arming.due)).await;
    let seen = series(ledger, &key).await;
    let task = NewTask {
        contents: Contents {
            tag: Some("changed".into()),
            ..Contents::default()
        },
        recurrence: Some(Recurrence::cron("@hourly").unwrap()),
        ..NewTask::new(key.clone(), arming.due)
    };
    assert_eq!(
        ledger.write_series(&task, Some(&seen)).await.unwrap(),
        Some(arming)
    );
    let record = record(ledger, &key).await;
    assert_eq!((record.due, record.attempt), (arming.due, 1));
    assert_eq!(record.tag.as_deref(), Some("changed"));
    assert_eq!(Some(recurrence(ledger, &key).await), task.recurrence);
}

async fn a_task_created_over_a_series_runs_once(ledger: &impl Ledger) {
    let key = key("series-over", 1);
    hourly(ledger, &key).await;
    create(ledger, &key, 60_000).await;
    assert_eq!(series(ledger, &key).await.recurrence, None);
    let every = ListFilter {
        class: Some("Conformance".into()),
        method: Some("series-over".into()),
        recurring: true,
        limit: 10,
        ..ListFilter::default()
    };
    assert_eq!(ledger.list(&every).await.unwrap().tasks, []);
}

async fn recurring_tasks_are_listed_in_the_order_of_their_creation(ledger: &impl Ledger) {
    let key = |n: u32| key("series-listed", n);
    for n in 0..7 {
        match n {
            1 | 4 => drop(create(ledger, &key(n), 60_000).await),
            _ => drop(hourly(ledger, &key(n)).await),
        }
    }
    // Due before all others; and ended.
    let now = ledger.sync_clock().await.unwrap();
    ledger.reschedule(&key(6), now).await.unwrap();
    cancel(ledger, &key(2)).await;
    let mut filter = ListFilter {
        class: Some("Conformance".into()),
        method: Some("series-listed".into()),
        recurring: true,
        states: vec![StateFilter::Is(State::Pending)],
        limit: 2,
        ..ListFilter::default()
    };
    let mut pages: Vec<Vec<TaskKey>> = Vec::new();
    loop {
        let page = ledger.list(&filter).await.unwrap();
        pages.push(page.tasks.into_iter().map(|task| task.key).collect());
        let Some(next) = page.next else { break };
        assert!(matches!(next, ListCursor::Row(_)), "{next}");
        filter.cursor = Some(next);
    }
    let expected = [vec![key(0), key(3)], vec![key(5), key(6)], vec![]];
    assert_eq!(pages, expected);

    filter.cursor = Some(ListCursor::Key("Conformance@series-listed@3".into()));
    let refused = ledger.list(&filter).await.unwrap_err().to_string();
    assert!(refused.contains("list with other filters"), "{refused}");
}

/// A series as it is wanted.
fn wanted(key: &TaskKey, every_secs: u64) -> NewTask {
    NewTask {
        recurrence: Some(Recurrence::every(Duration::from_secs(every_secs)).unwrap()),
        ..NewTask::new(key.clone(), UnixMs(0))
    }
}

async fn a_configured_series_stays_as_it_is_and_is_changed_when_it_does_not_run(
    ledger: &impl Ledger,
) {
    let key = key("series-configured", 1);
    let (seldom, often) = (wanted(&key, 86_400), wanted(&key, 43_200));
    let configured = DeclaredBy::Configuration;
    let begun = establish(ledger, ledger.clock(), &seldom, configured)
        .await
        .unwrap();
    let Established::Started(arming) = begun else {
        panic!("{begun:?}")
    };
    assert_eq!(arming.due.0 % 86_400_000, 0, "counted from the epoch");
    let again = establish(ledger, ledger.clock(), &seldom, configured)
        .await
        .unwrap();
    assert_eq!(again, Established::Unchanged(arming, State::Pending));

    let RunNowAnswer::Due(now) = ledger.run_now(&key).await.unwrap() else {
        panic!("it was pending")
    };
    let claimed = claim(ledger, now, LEASE).await.unwrap();
    let left = establish(ledger, ledger.clock(), &often, configured)
        .await
        .unwrap();
    assert_eq!(left, Established::Running(now));
    let settled = settle(ledger, &claimed, go_on(arming.due, None)).await;
    assert_eq!(settled, Settled::Applied, "its result counts");
    let changed = establish(ledger, ledger.clock(), &often, configured)
        .await
        .unwrap();
    assert!(
        matches!(changed, Established::Changed { .. }),
        "{changed:?}"
    );
    let noted = often.recurrence.map(Recurrence::configured);
    assert_eq!(Some(recurrence(ledger, &key).await), noted);
}

async fn a_configured_series_that_was_ended_stays_ended_until_it_is_another_one(
    ledger: &impl Ledger,
) {
    let key = key("series-ended", 1);
    let configured = DeclaredBy::Configuration;
    let begun = establish(ledger, ledger.clock(), &wanted(&key, 86_400), configured).await;
    assert!(matches!(begun, Ok(Established::Started(_))));
    cancel(ledger, &key).await;
    let ended = establish(ledger, ledger.clock(), &wanted(&key, 86_400), configured).await;
    let Ok(Established::Ended(_, State::Cancelled)) = ended else {
        panic!("{ended:?}")
    };
    assert_eq!(state(ledger, &key).await, State::Cancelled);
    let other = wanted(&key, 3_600);
    let again = DeclaredBy::ConfigurationAgain;
    let waited = establish(ledger, ledger.clock(), &other, again).await;
    let is_left = matches!(waited, Ok(Established::Ended(_, State::Cancelled)));
    assert!(is_left, "it ended after the configuration: {waited:?}");
    let other = establish(ledger, ledger.clock(), &other, configured).await;
    assert!(matches!(other, Ok(Established::Started(_))), "{other:?}");
    assert_eq!(state(ledger, &key).await, State::Pending);
}

async fn a_recurring_task_requested_again_restarts_and_is_moved_while_it_runs(
    ledger: &impl Ledger,
) {
    let key = key("series-now", 1);
    let before = ledger.sync_clock().await.unwrap();
    let begun = establish(
        ledger,
        ledger.clock(),
        &wanted(&key, 3_600),
        DeclaredBy::Producer,
    )
    .await;
    let Ok(Established::Started(first)) = begun else {
        panic!("{begun:?}")
    };
    let ahead = first.due.0 - before.0;
    assert!(
        (3_600_000..3_620_000).contains(&ahead),
        "counted from now: {ahead}"
    );
    cancel(ledger, &key).await;
    let anew = establish(
        ledger,
        ledger.clock(),
        &wanted(&key, 3_600),
        DeclaredBy::Producer,
    )
    .await;
    assert!(matches!(anew, Ok(Established::Started(_))), "{anew:?}");

    let RunNowAnswer::Due(now) = ledger.run_now(&key).await.unwrap() else {
        panic!("it was pending")
    };
    let claimed = claim(ledger, now, LEASE).await.unwrap();
    let moved = establish(
        ledger,
        ledger.clock(),
        &wanted(&key, 7_200),
        DeclaredBy::Producer,
    )
    .await;
    let Ok(Established::Changed {
        older_run: true, ..
    }) = moved
    else {
        panic!("{moved:?}")
    };
    let settled = settle(ledger, &claimed, go_on(first.due, None)).await;
    assert_eq!(settled, Settled::Superseded);
}

async fn a_series_that_a_configuration_finds_says_so_from_then_on(ledger: &impl Ledger) {
    let key = key("series-found", 1);
    let wanted = wanted(&key, 3_600);
    establish(ledger, ledger.clock(), &wanted, DeclaredBy::Producer)
        .await
        .unwrap();
    assert!(!recurrence(ledger, &key).await.is_configured());
    cancel(ledger, &key).await;
    for _ in 0..2 {
        let ended = establish(ledger, ledger.clock(), &wanted, DeclaredBy::Configuration).await;
        assert!(matches!(ended, Ok(Established::Ended(_, State::Cancelled))));
        assert!(recurrence(ledger, &key).await.is_configured());
    }
    let begun = establish(ledger, ledger.clock(), &wanted, DeclaredBy::Producer).await;
    let Ok(Established::Started(arming)) = begun else {
        panic!("{begun:?}")
    };
    assert!(recurrence(ledger, &key).await.is_configured());
    let found = establish(ledger, ledger.clock(), &wanted, DeclaredBy::Configuration).await;
    assert_eq!(
        found.unwrap(),
        Established::Unchanged(arming, State::Pending)
    );
}

async fn noting_that_a_configuration_wants_a_series_changes_nothing_else(ledger: &impl Ledger) {
    let key = key("series-noted", 1);
    let arming = hourly(ledger, &key).await;
    let before = ledger.find(&key).await.unwrap().unwrap();
    let seen = series(ledger, &key).await;
    assert!(ledger.mark_configured(&seen).await.unwrap());
    assert!(
        !ledger.mark_configured(&seen).await.unwrap(),
        "it is not what was seen any more"
    );
    let noted = recurrence(ledger, &key).await;
    assert!(noted.is_configured());
    let after = ledger.find(&key).await.unwrap().unwrap();
    assert_eq!(
        TaskRecord {
            recurrence: before.recurrence.clone(),
            ..after
        },
        before
    );
    // Over moves and occurrences it stays noted.
    assert!(matches!(
        ledger
            .reschedule(&key, UnixMs(arming.due.0 - 1))
            .await
            .unwrap(),
        RescheduleAnswer::Moved(_)
    ));
    let arming = lookup(ledger, &key).await.unwrap().arming;
    let claimed = claim(ledger, arming, LEASE).await.unwrap();
    let next = UnixMs(arming.due.0 + 3_600_000);
    settle(ledger, &claimed, go_on(next, None)).await;
    assert_eq!(recurrence(ledger, &key).await, noted);
}
