//! What is found by its due time, and by what people ask for.

use std::collections::BTreeMap;
use std::time::Duration;

use lapsed::ledger::{DueScan, Ledger, MethodScan, NewTask, Upcoming, Window};
use lapsed::task::{KeyBucket, KeyBuckets, TaskKey, UnixMs};

use crate::ledger_conformance::rig::{LEASE, by, claim, create, key};

rules! {
    scans_go_by_due_time_in_pages
    a_scan_for_news_leaves_out_what_is_known
    a_scan_for_news_is_of_the_buckets_that_are_asked_for
    a_scan_for_overdue_news_leaves_out_what_is_leased
    overdue_tasks_are_found_by_class_and_method
}

async fn pages(ledger: &impl Ledger, window: Window, rule: &str) -> Vec<String> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = ledger
            .scan(DueScan {
                window,
                after,
                limit: 2,
            })
            .await
            .unwrap();
        found.extend(
            page.rows
                .iter()
                .filter(|row| row.key.method() == rule)
                .map(|row| row.key.args().next().unwrap().to_owned()),
        );
        after = page.next;
        if after.is_none() {
            return found;
        }
    }
}

async fn scans_go_by_due_time_in_pages(ledger: &impl Ledger) {
    for (name, in_ms) in [
        ("c", -1_000),
        ("a", -3_000),
        ("b", -2_000),
        ("far", 3_600_000),
        ("near", 5_000),
    ] {
        create(ledger, &key("scan", name), in_ms).await;
    }
    let leased = create(ledger, &key("scan", "leased"), -2_500).await;
    claim(ledger, leased, LEASE).await.unwrap();
    assert_eq!(
        pages(ledger, Window::OverdueOldest(Duration::ZERO), "scan").await,
        ["a", "b", "c"]
    );
    assert_eq!(
        pages(ledger, Window::OverdueNewest(Duration::ZERO), "scan").await,
        ["c", "b", "a"]
    );
    assert_eq!(
        pages(ledger, Window::Due, "scan").await,
        ["a", "leased", "b", "c"]
    );
    assert_eq!(
        pages(ledger, Window::Ahead(Duration::from_secs(10)), "scan").await,
        ["near"]
    );
    assert_eq!(
        pages(ledger, Window::Ahead(Duration::from_secs(7200)), "scan").await,
        ["near", "far"]
    );
    assert!(
        pages(
            ledger,
            Window::Deleted {
                back: Duration::from_secs(60),
                ahead: Duration::from_secs(7200)
            },
            "scan"
        )
        .await
        .is_empty()
    );
}

async fn a_scan_for_news_leaves_out_what_is_known(ledger: &impl Ledger) {
    let mut armings = Vec::new();
    for (name, in_ms) in [("a", 5_000), ("b", 6_000), ("c", 7_000)] {
        armings.push(create(ledger, &key("news", name), in_ms).await);
    }
    let moved = armings[1].due.plus(Duration::from_millis(500));
    ledger.reschedule(&key("news", "b"), moved).await.unwrap();
    let seen: Vec<(u64, UnixMs)> = armings
        .iter()
        .map(|arming| (arming.row, arming.due))
        .collect();
    let known = |row: u64, due: UnixMs| seen.contains(&(row, due));
    let (mut news, mut after) = (Vec::new(), None);
    loop {
        let scan = DueScan {
            window: Window::Ahead(Duration::from_secs(10)),
            after,
            limit: 1,
        };
        let all = KeyBuckets::all();
        let page = ledger.scan_new(scan, &all, &known).await.unwrap();
        let own = page
            .rows
            .into_iter()
            .filter(|row| row.key.method() == "news");
        news.extend(own.map(|row| (row.key, row.due_at)));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(news, [(key("news", "b"), moved)]);
}

/// Non-ASCII keys, too: the ledger and this program have to agree on the bucket of each.
async fn a_scan_for_news_is_of_the_buckets_that_are_asked_for(ledger: &impl Ledger) {
    let now = ledger.sync_clock().await.unwrap();
    let ahead = Window::Ahead(Duration::from_secs(1_000));
    let oldest = Window::OverdueOldest(Duration::from_secs(1));
    let newest = Window::OverdueNewest(Duration::from_secs(1));
    let soon = now.plus(Duration::from_secs(500));
    let past = UnixMs(now.0 - 60_000);
    for (method, due, windows) in [
        ("ahead", soon, vec![ahead]),
        ("overdue", past, vec![oldest, newest]),
    ] {
        let mut keys = Vec::new();
        for n in 0..40 {
            let key = TaskKey::build("Bucket", method, [format!("Größe {n}")]).unwrap();
            let task = NewTask::new(key.clone(), UnixMs(due.0 + n));
            ledger.create(&[task]).await.unwrap();
            keys.push(key);
        }
        let half: KeyBuckets = KeyBucket::all().filter(|it| it.number() % 2 == 0).collect();
        let rest = KeyBuckets::all().without(&half);
        for among in [half, rest] {
            for window in &windows {
                let mut expected = keys.clone();
                expected.retain(|key| among.contains(KeyBucket::of(key)));
                assert!((1..40).contains(&expected.len()));
                if *window == newest {
                    expected.reverse();
                }
                let mut found = news(ledger, *window, &among).await;
                found.retain(|key| key.class() == "Bucket");
                assert_eq!(found, expected, "{window:?}");
            }
        }
    }
}

/// All pages of a scan for news of which nothing is known.
async fn news(ledger: &impl Ledger, window: Window, among: &KeyBuckets) -> Vec<TaskKey> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let scan = DueScan {
            window,
            after,
            limit: 7,
        };
        let page = ledger.scan_new(scan, among, &|_, _| false).await.unwrap();
        found.extend(page.rows.into_iter().map(|row| row.key));
        after = page.next;
        if after.is_none() {
            return found;
        }
    }
}

async fn a_scan_for_overdue_news_leaves_out_what_is_leased(ledger: &impl Ledger) {
    let past = UnixMs(ledger.sync_clock().await.unwrap().0 - 60_000);
    let mut armings = Vec::new();
    for name in ["leased", "free"] {
        let key = TaskKey::build("Leases", "news", [name]).unwrap();
        let created = ledger.create(&[NewTask::new(key, past)]).await.unwrap();
        armings.push(created[0].arming);
    }
    let claims = ledger.claim(&armings[..1], &by(LEASE)).await.unwrap();
    assert_eq!(claims.len(), 1);
    for window in [Window::OverdueOldest, Window::OverdueNewest] {
        let mut found = news(ledger, window(Duration::from_secs(1)), &KeyBuckets::all()).await;
        found.retain(|key| key.class() == "Leases");
        assert_eq!(found, [TaskKey::build("Leases", "news", ["free"]).unwrap()]);
    }
}

async fn overdue_tasks_are_found_by_class_and_method(ledger: &impl Ledger) {
    for (class, method, count) in [("By", "few", 2), ("By", "many", 5), ("Bye", "few", 1)] {
        for n in 0..count {
            let key = TaskKey::build(class, method, [n.to_string()]).unwrap();
            create(ledger, &key, -60_000 - 1_000 * n).await;
        }
    }
    let leased = TaskKey::parse("By@leased").unwrap();
    let leased = create(ledger, &leased, -60_000).await;
    claim(ledger, leased, LEASE).await.unwrap();
    create(ledger, &TaskKey::parse("By@future").unwrap(), 60_000).await;

    let (mut first, mut after) = (BTreeMap::new(), None);
    loop {
        let scan = MethodScan {
            by: Duration::from_secs(1),
            after,
            methods: 2,
            limit: 3,
        };
        let found = ledger.scan_methods(scan).await.unwrap().unwrap();
        assert!(found.pages.len() <= 2);
        for (tag, page) in found.pages {
            let row = page.rows.first().expect("a page has rows");
            let method = row.key.class_method().to_owned();
            if method.starts_with("By") {
                assert!(first.insert(method, (tag, page)).is_none(), "it comes once");
            }
        }
        after = found.next;
        if after.is_none() {
            break;
        }
    }
    let args = |rows: &[Upcoming]| -> Vec<String> {
        let args = rows.iter().map(|row| row.key.args().next().unwrap());
        args.map(str::to_owned).collect()
    };
    let found: Vec<_> = first
        .iter()
        .map(|(method, (_, page))| (method.as_str(), args(&page.rows), page.next.is_some()))
        .collect();
    let texts = |args: &[&str]| args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>();
    assert_eq!(
        found,
        [
            ("By@few", texts(&["1", "0"]), false),
            ("By@many", texts(&["4", "3", "2"]), true),
            ("Bye@few", texts(&["0"]), false),
        ]
    );
    let (tag, page) = &first["By@many"];
    let rest = DueScan {
        window: Window::OverdueOldest(Duration::from_secs(1)),
        after: page.next,
        limit: 3,
    };
    let rest = ledger.scan_method(tag, rest).await.unwrap();
    assert_eq!((args(&rest.rows), rest.next), (texts(&["1", "0"]), None));
}
