use super::*;

#[test]
fn a_cursor_is_read_back_as_it_was_told() {
    let due = ListCursor::Due {
        status: 2,
        deleted: true,
        due_at: UnixMs(1_763_750_000_000),
        row: 42,
    };
    let keys = ["Order@close@7", "not a key%\n\u{1f600}"].map(|key| ListCursor::Key(key.into()));
    let archived = ListCursor::Archived("Order@close@7.5".into(), 42);
    for cursor in [ListCursor::Row(7), due, archived].into_iter().chain(keys) {
        let text = cursor.to_string();
        assert!(text.is_ascii() && !text.contains(' '), "{text}");
        assert_eq!(text.parse(), Ok(cursor), "{text}");
    }
    for wrong in [
        "",
        "x",
        "due.1.2",
        "due.0.0.1.2.3",
        "archived.7",
        "archived.x.Order@close",
        "key.%f",
        "key.%ff",
        "-1",
    ] {
        assert!(wrong.parse::<ListCursor>().is_err(), "{wrong}");
    }
}

#[test]
fn a_list_is_in_the_order_of_the_index_that_leaves_the_fewest_rows() {
    use StateFilter::Is;
    let all = ListFilter::default;
    let of = |states: &[StateFilter]| ListFilter {
        states: states.to_vec(),
        ..all()
    };
    let class = |filter: ListFilter| ListFilter {
        class: Some("Mail".to_owned()),
        ..filter
    };
    let recurring = |filter: ListFilter| ListFilter {
        recurring: true,
        ..filter
    };
    let prefix = |prefix: &str, filter: ListFilter| ListFilter {
        prefix: Some(prefix.to_owned()),
        ..filter
    };
    let (dead, done) = (of(&[Is(State::Dead)]), of(&[Is(State::Done)]));
    for (filter, order) in [
        (all(), ListOrder::Row),
        (dead.clone(), ListOrder::Due),
        (class(all()), ListOrder::Key),
        (class(dead.clone()), ListOrder::Due),
        (class(done.clone()), ListOrder::Key),
        (prefix("Mail@", dead.clone()), ListOrder::Due),
        (prefix("Mail@send@7", dead.clone()), ListOrder::Key),
        (
            ListFilter {
                tag: Some("a".to_owned()),
                ..dead
            },
            ListOrder::Row,
        ),
        (
            ListFilter {
                due_after: Some(UnixMs(1)),
                ..class(done)
            },
            ListOrder::Due,
        ),
        (recurring(all()), ListOrder::Row),
        (recurring(of(&[Is(State::Pending)])), ListOrder::Row),
        (recurring(class(all())), ListOrder::Row),
        (recurring(prefix("Mail@send@7", all())), ListOrder::Key),
    ] {
        assert_eq!(filter.order(), order, "{filter:?}");
    }
}

#[test]
fn a_filter_with_empty_texts_only_is_open() {
    let open = ListFilter {
        class: Some(String::new()),
        prefix: Some(String::new()),
        error: Some(String::new()),
        limit: 3,
        ..ListFilter::default()
    };
    assert!(open.is_open() && ListFilter::default().is_open());
    let closed = ListFilter {
        tag: Some("shop".to_owned()),
        ..open.clone()
    };
    assert!(!closed.is_open());
    let recurring = ListFilter {
        recurring: true,
        ..open
    };
    assert!(!recurring.is_open());
}

#[test]
fn a_filter_that_would_cancel_everything_or_finished_tasks_is_refused() {
    let refused = |filter: ListFilter| filter.check_cancel().unwrap_err().to_string();
    let of = |states: &[State], filter: ListFilter| ListFilter {
        states: states.iter().copied().map(StateFilter::Is).collect(),
        ..filter
    };
    assert!(refused(ListFilter::default()).starts_with("the filter is empty"));
    assert!(refused(ListFilter::prefix("")).starts_with("an empty text"));
    assert!(refused(ListFilter::class("C").method("")).starts_with("an empty text"));
    assert!(refused(of(&[State::Dead], ListFilter::tag("t"))).starts_with("finished tasks"));
    let old = ListFilter {
        finished_before: Some(UnixMs(1)),
        ..ListFilter::tag("t")
    };
    assert!(refused(old).starts_with("a reason or an age"));
    let method = ListFilter::default().method("m");
    let running = of(&[State::Running], ListFilter::default());
    for filter in [ListFilter::tag("t"), method, running] {
        assert!(filter.check_cancel().is_ok(), "{filter:?}");
    }
}

#[test]
fn a_filter_is_of_a_tag_only_if_nothing_else_restricts_it() {
    assert_eq!(ListFilter::tag("t").only_tag(), Some("t"));
    assert_eq!(ListFilter::class("C").only_tag(), None);
    for filter in [
        ListFilter::tag("t").method("m"),
        ListFilter {
            except: vec![ClassGlob::parse("Order").unwrap()],
            ..ListFilter::tag("t")
        },
    ] {
        assert_eq!(filter.only_tag(), None, "{filter:?}");
    }
    let page = ListFilter {
        cursor: Some(ListCursor::Row(7)),
        limit: 3,
        ..ListFilter::tag("t")
    };
    assert_eq!(page.only_tag(), Some("t"));
}

#[test]
fn a_prefix_ends_before_the_next_text_that_does_not_begin_with_it() {
    for (prefix, end) in [
        ("Order@", "OrderA"),
        ("C@m@z", "C@m@{"),
        ("C@\u{d7ff}", "C@\u{e000}"),
        ("C\u{10ffff}\u{10ffff}", "D"),
        ("\u{10ffff}", "\u{10ffff}"),
    ] {
        assert_eq!(end_of_prefix(prefix), end, "{prefix:?}");
    }
}
