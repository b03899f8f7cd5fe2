use super::*;
use proptest::prelude::*;

fn name() -> impl Strategy<Value = String> {
    "[A-Za-z_][A-Za-z0-9_.:\\\\-]{0,20}"
}

fn arg() -> impl Strategy<Value = String> {
    "[^@\\p{Cc}]{0,12}".prop_filter("an argument does not end in a space", |arg| {
        !arg.ends_with(' ')
    })
}

proptest! {
    #[test]
    fn building_and_parsing_are_inverse(class in name(), method in name(), args in prop::collection::vec(arg(), 0..4)) {
        let built = TaskKey::build(&class, &method, &args)?;
        prop_assert_eq!(built.class(), &class);
        prop_assert_eq!(built.method(), &method);
        prop_assert_eq!(built.args().collect::<Vec<_>>(), args.iter().map(String::as_str).collect::<Vec<_>>());
        prop_assert_eq!(TaskKey::parse(built.as_str())?, built);
    }

    #[test]
    fn what_parses_is_rebuilt_to_the_same_text(text in "[A-Za-z_@ .:\\-0-9]{0,40}") {
        if let Ok(key) = TaskKey::parse(&text) {
            let rebuilt = TaskKey::build(key.class(), key.method(), key.args())?;
            prop_assert_eq!(rebuilt.as_str(), text);
        }
    }
}

#[test]
fn no_argument_and_one_empty_argument_differ() {
    assert_eq!(TaskKey::parse("C@m").unwrap().args().count(), 0);
    assert_eq!(
        TaskKey::parse("C@m@").unwrap().args().collect::<Vec<_>>(),
        [""]
    );
    assert_eq!(
        TaskKey::parse("C@m@@x").unwrap().args().collect::<Vec<_>>(),
        ["", "x"]
    );
}

#[test]
fn a_suffix_distinguishes_tasks_and_is_not_an_argument() {
    let mark = "01jd7p0c8v9zq5k3m2n4t6w8xy";
    for (base, args) in [
        ("C@m", &[][..]),
        ("C@m@", &[""][..]),
        ("C@m@42@x", &["42", "x"][..]),
    ] {
        let key = TaskKey::parse(base).unwrap().with_suffix(mark).unwrap();
        assert_eq!(key.as_str(), format!("{base}@~{mark}"));
        assert_eq!(key.args().collect::<Vec<_>>(), args);
        assert_eq!(key.suffix(), Some("~01jd7p0c8v9zq5k3m2n4t6w8xy"));
        let other = key.with_suffix("0000000000001").unwrap();
        assert_eq!(other.as_str(), format!("{base}@~0000000000001"));
        assert_eq!(other.args().collect::<Vec<_>>(), args);
    }
    for argument in [
        "~",
        "~123456789012",
        "~123456789012345678901234567",
        "~12345678901X3",
        "1234567890123",
    ] {
        let key = TaskKey::build("C", "m", [argument]).unwrap();
        assert_eq!((key.args().next(), key.suffix()), (Some(argument), None));
    }
    assert_eq!(
        TaskKey::parse("C@m@~1234567890123@x").unwrap().suffix(),
        None
    );
    let long = TaskKey::build("C", "m", ["x".repeat(230)]).unwrap();
    assert_eq!(
        long.with_suffix(mark).unwrap_err(),
        KeyError::TooLong { bytes: 262 }
    );
}

#[test]
fn args_do_not_contain_the_suffix() {
    let key = TaskKey::parse("C@m@x").unwrap();
    let suffixed = key.with_suffix("1763750000000").unwrap();
    assert_eq!(suffixed.as_str(), "C@m@x@~1763750000000");
    assert_eq!(suffixed.args().collect::<Vec<_>>(), ["x"]);
    assert_eq!(suffixed.suffix(), Some("~1763750000000"));
    let bare = TaskKey::parse("C@m@~1763750000000").unwrap();
    assert_eq!(
        (bare.args().count(), bare.suffix()),
        (0, Some("~1763750000000"))
    );
    for plain in [
        "C@m",
        "C@m@~",
        "C@m@~short",
        "C@m@~1763750000000@x",
        "C@m@~176375000000A",
    ] {
        assert_eq!(TaskKey::parse(plain).unwrap().suffix(), None, "{plain}");
    }
}

#[test]
fn php_namespaces_are_classes() {
    let key = TaskKey::parse(r"App\Jobs\Order@close@1").unwrap();
    assert_eq!(key.class(), r"App\Jobs\Order");
}

#[test]
fn an_invalid_key_is_refused_with_the_reason() {
    let refused = [
        (
            "",
            "key has no `@`, expected `Class@method` and then any `@argument`",
        ),
        (
            "cache:user:1",
            "key has no `@`, expected `Class@method` and then any `@argument`",
        ),
        (
            "@m",
            "class `` does not fit, expected a letter or `_`, then letters, digits or `_.:\\-`",
        ),
        (
            "C@",
            "method `` does not fit, expected a letter or `_`, then letters, digits or `_.:\\-`",
        ),
        (
            "9C@m",
            "class `9C` does not fit, expected a letter or `_`, then letters, digits or `_.:\\-`",
        ),
        ("C@m@a\nb", "argument 1 contains a control character"),
        ("C@m@a@b ", "argument 2 ends in a space"),
    ];
    for (text, reason) in refused {
        assert_eq!(
            TaskKey::parse(text).unwrap_err().to_string(),
            reason,
            "{text:?}"
        );
    }
    let longest = format!("C@m@{}", "x".repeat(251));
    assert_eq!(TaskKey::parse(&longest).unwrap().as_str(), longest);
    let name = KeyName::parse(longest.as_bytes());
    assert!(matches!(name, KeyName::Task(_)), "{name:?}");
    let long = format!("C@m@{}", "x".repeat(252));
    assert_eq!(
        TaskKey::parse(&long).unwrap_err().to_string(),
        "key has 256 bytes, expected at most 255"
    );
}

#[test]
fn a_builder_refuses_parts_that_would_parse_differently() {
    assert!(TaskKey::build("A@b", "c", [""; 0]).is_err());
    assert_eq!(
        TaskKey::build("A", "b", ["x@y"]).unwrap_err().to_string(),
        "argument 1 contains `@`, which separates arguments"
    );
}

#[test]
fn keys_are_compared_and_hashed_by_their_text() {
    let [first, second] = ["A@m@1", "A@m@2"].map(|text| TaskKey::parse(text).unwrap());
    assert_eq!(first.cmp(&second), std::cmp::Ordering::Less);
    let hash = |key: &TaskKey| {
        let mut hasher = std::hash::DefaultHasher::new();
        key.hash(&mut hasher);
        hasher.finish()
    };
    assert_eq!(hash(&first), hash(&TaskKey::parse("A@m@1").unwrap()));
    assert_ne!(hash(&first), hash(&second));
}
