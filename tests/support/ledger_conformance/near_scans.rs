//! What falls due about now, and is not known yet.

use std::sync::Mutex;
use std::time::Duration;

use lapsed::ledger::{Ledger, NearScan};
use lapsed::task::{KeyBucket, KeyBuckets};

use crate::ledger_conformance::rig::{LEASE, claim, create, key};

rules! {
    a_near_scan_is_of_rows_due_about_now_latest_first
    a_near_scan_asks_once_about_each_entry
}

/// Far more than a rule takes, and less than the due times of these rules are apart.
const NEAR: Duration = Duration::from_secs(600);

/// What a near scan finds of this rule, and which of its rows it has asked about.
async fn found(
    ledger: &impl Ledger,
    rule: &str,
    among: &KeyBuckets,
    limit: u32,
    known: impl Fn(u64) -> bool + Send + Sync,
) -> (Vec<String>, Vec<u64>) {
    let scan = NearScan {
        back: NEAR,
        ahead: NEAR,
        limit,
    };
    let asked: Mutex<Vec<u64>> = Mutex::default();
    let known = |row, _| {
        asked.lock().unwrap().push(row);
        known(row)
    };
    let rows = ledger.scan_near(scan, among, &known).await.unwrap();
    let of_rule = rows.into_iter().filter(|row| row.key.method() == rule);
    let names = of_rule.map(|row| row.key.args().next().unwrap().to_owned());
    (names.collect(), asked.into_inner().unwrap())
}

async fn a_near_scan_is_of_rows_due_about_now_latest_first(ledger: &impl Ledger) {
    const RULE: &str = "near";
    for (name, in_ms) in [
        ("past", -1_200_000),
        ("overdue", -60_000),
        ("now", 0),
        ("soon", 60_000),
        ("later", 1_200_000),
    ] {
        create(ledger, &key(RULE, name), in_ms).await;
    }
    let leased = create(ledger, &key(RULE, "leased"), -30_000).await;
    claim(ledger, leased, LEASE).await.unwrap();
    let all = KeyBuckets::all();
    let (names, _) = found(ledger, RULE, &all, 10_000, |_| false).await;
    assert_eq!(names, ["soon", "now", "overdue"]);
    let soon = KeyBuckets::from_iter([KeyBucket::of(&key(RULE, "soon"))]);
    let (names, _) = found(ledger, RULE, &soon, 10_000, |_| false).await;
    assert!(names.contains(&"soon".to_owned()), "{names:?}");
    let (names, _) = found(ledger, RULE, &all.without(&soon), 10_000, |_| false).await;
    assert!(!names.contains(&"soon".to_owned()), "{names:?}");
}

async fn a_near_scan_asks_once_about_each_entry(ledger: &impl Ledger) {
    const RULE: &str = "near_known";
    let mut rows = Vec::new();
    for (name, in_ms) in [("a", 500_000), ("b", 501_000), ("c", 502_000)] {
        rows.push(create(ledger, &key(RULE, name), in_ms).await.row);
    }
    let all = KeyBuckets::all();
    let (names, asked) = found(ledger, RULE, &all, 10_000, |row| row == rows[1]).await;
    assert_eq!(names, ["c", "a"]);
    for row in &rows {
        let times = asked.iter().filter(|asked| *asked == row).count();
        assert_eq!(times, 1, "{row}");
    }
    // The entry with the latest due time: "c", or a row of another rule.
    let (_, asked) = found(ledger, RULE, &all, 1, |_| false).await;
    assert_eq!(asked.len(), 1);
    assert!(!rows[..2].contains(&asked[0]), "{asked:?} of {rows:?}");
}
