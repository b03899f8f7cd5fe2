//! What people ask for: lists by filter, in pages.

use lapsed::ledger::{Ledger, LedgerError, ListCursor, ListFilter, NewTask, StateFilter};
use lapsed::task::{ClassGlob, Contents, State, TaskKey, UnixMs};

rules! {
    lists_are_filtered_and_paged
    a_brief_list_leaves_payloads_and_results_out
    a_list_is_of_the_classes_that_its_globs_name
    pages_of_a_list_are_in_the_order_of_an_index_and_leave_nothing_out
}

async fn lists_are_filtered_and_paged(ledger: &impl Ledger) {
    let due = ledger.sync_clock().await.unwrap();
    let class = |class: &str, arg: &str| TaskKey::build(class, "list", [arg]).unwrap();
    for n in 0..5 {
        let task = NewTask {
            contents: Contents {
                tag: Some("list_tag".into()),
                ..Contents::default()
            },
            ..NewTask::new(class("List_x", &n.to_string()), UnixMs(due.0 + 60_000 + n))
        };
        ledger.create(&[task]).await.unwrap();
    }
    ledger
        .create(&[NewTask::new(class("Listyx", "other"), UnixMs(due.0 - 5))])
        .await
        .unwrap();
    let all = ListFilter {
        class: Some("List_x".into()),
        limit: 100,
        ..ListFilter::default()
    };
    assert_eq!(
        ledger.list(&all).await.unwrap().tasks.len(),
        5,
        "`_` is no wildcard"
    );
    let tagged = ListFilter {
        tag: Some("list_tag".into()),
        limit: 2,
        ..ListFilter::default()
    };
    let first = ledger.list(&tagged).await.unwrap();
    let second = ledger
        .list(&ListFilter {
            cursor: first.next,
            ..tagged.clone()
        })
        .await
        .unwrap();
    let third = ledger
        .list(&ListFilter {
            cursor: second.next,
            ..tagged
        })
        .await
        .unwrap();
    assert_eq!(
        (
            first.tasks.len(),
            second.tasks.len(),
            third.tasks.len(),
            third.next
        ),
        (2, 2, 1, None)
    );
    let overdue = ListFilter {
        states: vec![StateFilter::Overdue],
        method: Some("list".into()),
        limit: 100,
        ..ListFilter::default()
    };
    assert_eq!(ledger.list(&overdue).await.unwrap().tasks.len(), 1);
    let window = ListFilter {
        due_after: Some(UnixMs(due.0 + 60_001)),
        due_before: Some(UnixMs(due.0 + 60_003)),
        ..all
    };
    assert_eq!(ledger.list(&window).await.unwrap().tasks.len(), 2);
    let none = ListFilter {
        states: vec![StateFilter::Is(State::Dead)],
        ..window
    };
    assert!(ledger.list(&none).await.unwrap().tasks.is_empty());
}

async fn a_brief_list_leaves_payloads_and_results_out(ledger: &impl Ledger) {
    let due = ledger.sync_clock().await.unwrap();
    let key = TaskKey::parse("Brief@send@1").unwrap();
    let task = NewTask {
        contents: Contents {
            payload: Some("[1]".into()),
            tag: Some("brief_tag".into()),
            ..Contents::default()
        },
        ..NewTask::new(key, UnixMs(due.0 + 60_000))
    };
    ledger.create(&[task]).await.unwrap();
    for (brief, payload) in [(false, Some("[1]")), (true, None)] {
        let filter = ListFilter {
            tag: Some("brief_tag".into()),
            limit: 10,
            brief,
            ..ListFilter::default()
        };
        let tasks = ledger.list(&filter).await.unwrap().tasks;
        assert_eq!(tasks.len(), 1);
        assert_eq!(tasks[0].payload.as_deref(), payload);
        assert_eq!(tasks[0].tag.as_deref(), Some("brief_tag"));
        assert!(!tasks[0].archived);
    }
}

async fn a_list_is_of_the_classes_that_its_globs_name(ledger: &impl Ledger) {
    let due = ledger.sync_clock().await.unwrap();
    for key in [
        "Glob_x@send@1",
        "Glob_x@sendNow@send",
        "Glob_x@read@Glob_x@send",
        "Globyx@send@1",
        "Glob_xy@send",
    ] {
        let key = TaskKey::parse(key).unwrap();
        let task = NewTask {
            contents: Contents {
                tag: Some("glob_tag".into()),
                ..Contents::default()
            },
            ..NewTask::new(key, UnixMs(due.0 + 60_000))
        };
        ledger.create(&[task]).await.unwrap();
    }
    let globs = |texts: &[&str]| -> Vec<ClassGlob> {
        let globs = texts.iter().map(|text| ClassGlob::parse(text));
        globs.collect::<Result<_, _>>().unwrap()
    };
    for (only, except, expected) in [
        (
            &["Glob_x"][..],
            &[][..],
            "Glob_x@send@1 Glob_x@sendNow@send Glob_x@read@Glob_x@send",
        ),
        (&["Glob_x@send"], &[], "Glob_x@send@1"),
        (&["Glob_x@s*"], &[], "Glob_x@send@1 Glob_x@sendNow@send"),
        (
            &["Glob_x*@send", "Globyx"],
            &[],
            "Glob_x@send@1 Globyx@send@1 Glob_xy@send",
        ),
        (&["*_x"], &["*@*e*d"], "Glob_x@sendNow@send"),
        (&[], &["Glob*x"], "Glob_xy@send"),
        (&["glob_x", "G*b"], &[], ""),
    ] {
        let filter = ListFilter {
            tag: Some("glob_tag".into()),
            only: globs(only),
            except: globs(except),
            limit: 1,
            ..ListFilter::default()
        };
        let (mut page, mut found) = (filter.clone(), Vec::new());
        loop {
            let listed = ledger.list(&page).await.unwrap();
            found.extend(listed.tasks.iter().map(|task| task.key.to_string()));
            page.cursor = listed.next;
            if page.cursor.is_none() {
                break;
            }
        }
        assert_eq!(found.join(" "), expected, "{filter:?}");
    }
}

async fn pages_of_a_list_are_in_the_order_of_an_index_and_leave_nothing_out(ledger: &impl Ledger) {
    let due = ledger.sync_clock().await.unwrap();
    // Two fall due in the same millisecond; created in another order than they are due or named.
    for (arg, ahead) in [("c", 3), ("a", 9), ("d", 1), ("b", 3), ("e", 7)] {
        let key = TaskKey::build("Paged", "list", [arg]).unwrap();
        let task = NewTask {
            contents: Contents {
                tag: Some("paged_tag".into()),
                ..Contents::default()
            },
            ..NewTask::new(key, UnixMs(due.0 + 600_000 + ahead))
        };
        ledger.create(&[task]).await.unwrap();
    }
    let class = ListFilter {
        class: Some("Paged".into()),
        limit: 1,
        ..ListFilter::default()
    };
    let tagged = ListFilter {
        tag: Some("paged_tag".into()),
        ..class.clone()
    };
    let pending = ListFilter {
        states: vec![StateFilter::Is(State::Pending)],
        ..class.clone()
    };
    let soon = ListFilter {
        due_after: Some(UnixMs(due.0 + 600_003)),
        due_before: Some(UnixMs(due.0 + 600_009)),
        ..class.clone()
    };
    for (filter, expected) in [
        (class, "abcde"),
        (tagged, "cadbe"),
        (pending, "dcbea"),
        (soon, "cbe"),
    ] {
        let (mut filter, mut found) = (filter, String::new());
        loop {
            let page = ledger.list(&filter).await.unwrap();
            for task in page.tasks {
                found += task.key.args().last().unwrap();
            }
            filter.cursor = page.next;
            if filter.cursor.is_none() {
                break;
            }
            let handed_on = filter.cursor.unwrap().to_string();
            filter.cursor = Some(handed_on.parse().unwrap());
        }
        assert_eq!(found, expected, "{filter:?}");
    }
    let other = ListFilter {
        cursor: Some(ListCursor::Key("Paged@list@a".to_owned())),
        ..ListFilter::default()
    };
    let refused = ledger.list(&other).await.unwrap_err();
    assert!(matches!(refused, LedgerError::Invalid(_)), "{refused}");
}
