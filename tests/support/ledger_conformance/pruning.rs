//! Forgetting what is finished.

use std::time::Duration;

use lapsed::ledger::{Ledger, Prune, Pruned, Retention};
use lapsed::task::{State, TaskKey, UnixMs, Verdict};

use crate::ledger_conformance::rig::{
    LEASE, bury, cancel, claim, claim_due, create, key, pass, record, retry_at, settle,
};
use crate::ledger_conformance::series::{hourly, series};

rules! {
    pruning_deletes_old_finished_rows_and_no_others
    a_series_that_has_ended_is_pruned_unless_a_configuration_wants_it
}

async fn a_series_that_has_ended_is_pruned_unless_a_configuration_wants_it(ledger: &impl Ledger) {
    for wanted in [false, true] {
        let keys = ["done", "dead", "cancelled"]
            .map(|end| key("series-pruned", format!("{end}-{wanted}")));
        let ended = prune_ended(ledger, &keys, wanted).await;
        assert_eq!(ended, [wanted; 3], "which are there still");
    }
}

/// Series that are done, dead and cancelled, and old enough to be pruned: which of them stay.
async fn prune_ended(ledger: &impl Ledger, keys: &[TaskKey; 3], wanted: bool) -> Vec<bool> {
    for (key, verdict) in keys.iter().zip([Verdict::Complete, bury()]) {
        let arming = hourly(ledger, key).await;
        let claimed = claim(ledger, arming, LEASE).await.unwrap();
        settle(ledger, &claimed, verdict).await;
    }
    hourly(ledger, &keys[2]).await;
    cancel(ledger, &keys[2]).await;
    if wanted {
        for key in keys {
            // Ended already when a daemon sees it for the first time.
            let seen = series(ledger, key).await;
            assert!(ledger.mark_configured(&seen).await.unwrap());
        }
    }
    let finished = ledger.find(&keys[2]).await.unwrap().unwrap().finished;
    pass(ledger, UnixMs(finished.unwrap().0 + 60)).await;
    for state in [State::Done, State::Dead, State::Cancelled] {
        let prune = Prune {
            state,
            age: Some(Duration::from_millis(50)),
            surplus: ledger.surplus(state, 0).await.unwrap(),
            after: None,
            limit: 100,
            archive: false,
            dry_run: false,
        };
        prune_all(ledger, prune).await;
    }
    let mut there = Vec::new();
    for key in keys {
        there.push(ledger.find(key).await.unwrap().is_some());
    }
    there
}

async fn prune_all(ledger: &impl Retention, mut prune: Prune) -> Pruned {
    let mut total = Pruned::default();
    loop {
        let pruned = ledger.prune(&prune).await.unwrap();
        total.rows += pruned.rows;
        prune.after = pruned.next;
        if prune.after.is_none() {
            return total;
        }
    }
}

async fn pruning_deletes_old_finished_rows_and_no_others(ledger: &impl Ledger) {
    let key = |arg: &str| key("prune", arg);
    // Pending, waiting, running: all of them long overdue.
    create(ledger, &key("pending"), -5_000).await;
    let waiting = claim_due(ledger, &key("waiting"), LEASE).await;
    settle(ledger, &waiting, retry_at(UnixMs(9_000_000_000_000))).await;
    let _running = claim_due(ledger, &key("running"), LEASE).await;
    // Cancelled before it was due: its key may be armed yet.
    create(ledger, &key("ahead"), 60_000).await;
    cancel(ledger, &key("ahead")).await;
    create(ledger, &key("cancelled"), -10).await;
    cancel(ledger, &key("cancelled")).await;
    for n in 0..5 {
        let done = claim_due(ledger, &key(&format!("done{n}")), LEASE).await;
        settle(ledger, &done, Verdict::Complete).await;
    }
    let dead = claim_due(ledger, &key("dead"), LEASE).await;
    settle(ledger, &dead, bury()).await;

    let finished = record(ledger, &key("dead")).await.finished.unwrap();
    let prune = |state, age_ms| Prune {
        state,
        age: Some(Duration::from_millis(age_ms)),
        surplus: None,
        after: None,
        limit: 2,
        archive: false,
        dry_run: false,
    };
    let before = prune_all(ledger, prune(State::Done, 3_600_000)).await;
    assert_eq!(before.rows, 0, "nothing is so old");
    pass(ledger, UnixMs(finished.0 + 60)).await;
    let unlimited = Prune {
        age: None,
        ..prune(State::Done, 0)
    };
    assert_eq!(prune_all(ledger, unlimited).await.rows, 0);
    let all_but_three = ledger.surplus(State::Done, 3).await.unwrap();
    assert!(all_but_three.is_some());
    let too_young = Prune {
        surplus: all_but_three,
        ..unlimited
    };
    assert_eq!(
        prune_all(ledger, too_young).await.rows,
        0,
        "not even surplus"
    );

    let dry = Prune {
        dry_run: true,
        ..prune(State::Done, 50)
    };
    let counted = prune_all(ledger, dry).await.rows;
    assert!(counted >= 5, "{counted}");
    assert!(ledger.find(&key("done0")).await.unwrap().is_some());
    assert_eq!(
        prune_all(ledger, prune(State::Done, 50)).await.rows,
        counted
    );
    assert_eq!(ledger.surplus(State::Done, 0).await.unwrap(), None);
    assert!(ledger.find(&key("done0")).await.unwrap().is_none());
    for state in State::ALL {
        prune_all(ledger, prune(state, 50)).await;
        let surplus = ledger.surplus(state, 0).await.unwrap();
        prune_all(
            ledger,
            Prune {
                surplus,
                ..prune(state, 0)
            },
        )
        .await;
    }
    for gone in ["dead", "cancelled"] {
        assert!(ledger.find(&key(gone)).await.unwrap().is_none(), "{gone}");
    }
    let states = [
        ("pending", State::Pending),
        ("waiting", State::Waiting),
        ("running", State::Running),
        ("ahead", State::Cancelled),
    ];
    for (kept, state) in states {
        let found = ledger.find(&key(kept)).await.unwrap();
        assert_eq!(found.map(|found| found.state), Some(state), "{kept}");
    }
}
