//! Random sequences of commands.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

/// Commands that are sent at once, before any answer is read.
pub type Batch = Vec<Command>;

/// The words of a command. A word such as `{3}` stands for a key, `[2]` and `<2>` for seconds to
/// wait and Unix seconds, `[2]000` and `<2>000` for milliseconds. `|2|000` is another Unix time in
/// milliseconds, and `(2)` the milliseconds until then.
pub type Command = Vec<String>;

/// Fewer keys than commands, so that commands meet.
const KEYS: [&str; 4] = ["{1}", "{2}", "{3}", "{4}"];

/// Hundreds of thousands of seconds: no command is late enough to confuse them.
const SECONDS: [&str; 4] = ["[1]", "[2]", "[3]", "[9]"];
const MILLISECONDS: [&str; 4] = ["[1]000", "[2]000", "[3]000", "[9]000"];
/// As far ahead, by the clock.
const UNIX_SECONDS: [&str; 3] = ["<1>", "<2>", "<9>"];
const UNIX_MILLISECONDS: [&str; 3] = ["<1>000", "<2>000", "<9>000"];

/// Moments to write a value for, each as a Unix time and as the milliseconds until then: so a relative due time meets an
/// absolute one. No other due time lies near them, so that no comparison of due times depends on a millisecond.
const MOMENTS: [&str; 2] = ["|1|000", "|2|000"];
const UNTIL_MOMENTS: [&str; 2] = ["(1)", "(2)"];

/// The greatest number is left out: the server takes no due time beyond ten years, and Redis does.
const WRONG_NUMBERS: [&str; 8] = [
    "0",
    "-1",
    "",
    "1.5",
    " 7",
    "0x10",
    "ten",
    "9223372036854775808",
];

const VALUES: [&str; 5] = ["", "a", r#"{"order":42}"#, "12", "拍賣 \u{1} \r\n"];

/// How one session talks: the version of the protocol, and its batches.
pub fn session() -> impl Strategy<Value = (u8, Vec<Batch>)> {
    let batch = prop_oneof![
        6 => vec(any_command(), 1..6),
        2 => transaction(),
        1 => vec(stray(), 1..4),
    ];
    (select(vec![2, 3]), vec(batch, 1..12))
}

fn any_command() -> impl Strategy<Value = Command> {
    prop_oneof![
        8 => scheduling(),
        4 => moving(),
        6 => asking(),
        3 => removing(),
        3 => refused(),
    ]
}

fn scheduling() -> impl Strategy<Value = Command> {
    let set = prop_oneof![
        (select(&["EX", "ex"][..]), select(&SECONDS[..])),
        (select(&["PX", "Px"][..]), select(&MILLISECONDS[..])),
        (Just("EXAT"), select(&UNIX_SECONDS[..])),
        (Just("PXAT"), select(&UNIX_MILLISECONDS[..])),
        (Just("PXAT"), select(&MOMENTS[..])),
        (Just("PX"), select(&UNTIL_MOMENTS[..])),
    ];
    let options = select(vec![
        &[][..],
        &["NX"],
        &["XX"],
        &["GET"],
        &["nx", "get"],
        &["XX", "GET"],
    ]);
    let key = || select(&KEYS[..]);
    let value = || select(&VALUES[..]);
    prop_oneof![
        (key(), select(&SECONDS[..]), value())
            .prop_map(|(key, time, value)| words(&["SETEX", key, time, value])),
        (key(), select(&MILLISECONDS[..]), value())
            .prop_map(|(key, time, value)| words(&["psetex", key, time, value])),
        (key(), select(&UNTIL_MOMENTS[..]), value())
            .prop_map(|(key, time, value)| words(&["PSETEX", key, time, value])),
        (key(), value(), set, options, any::<bool>()).prop_map(
            |(key, value, (unit, time), options, first)| {
                let time = [unit, time];
                let (one, other) = match first {
                    true => (options, &time[..]),
                    false => (&time[..], options),
                };
                words(&[&["SET", key, value], one, other].concat())
            }
        ),
        // Keeps the due time; on a missing key it would be a value without one.
        (key(), value()).prop_map(|(key, value)| words(&["SET", key, value, "XX", "KEEPTTL"])),
    ]
}

fn moving() -> impl Strategy<Value = Command> {
    let time = prop_oneof![
        (Just("EXPIRE"), select(&SECONDS[..])),
        (Just("PEXPIRE"), select(&MILLISECONDS[..])),
        (Just("EXPIREAT"), select(&UNIX_SECONDS[..])),
        (Just("PEXPIREAT"), select(&UNIX_MILLISECONDS[..])),
    ];
    let option = select(vec![
        &[][..],
        &["NX"],
        &["XX"],
        &["GT"],
        &["lt"],
        &["XX", "GT"],
        &["NX", "XX"],
        &["GT", "LT"],
        &["SOON"],
    ]);
    (select(&KEYS[..]), time, option)
        .prop_map(|(key, (name, time), option)| words(&[&[name, key, time], option].concat()))
}

fn asking() -> impl Strategy<Value = Command> {
    const NAMES: [&str; 7] = [
        "GET",
        "get",
        "TTL",
        "PTTL",
        "EXPIRETIME",
        "PEXPIRETIME",
        "TYPE",
    ];
    prop_oneof![
        4 => (select(&NAMES[..]), select(&KEYS[..])).prop_map(|(name, key)| words(&[name, key])),
        1 => vec(select(&KEYS[..]), 1..4).prop_map(|keys| words(&[&["EXISTS"], &keys[..]].concat())),
        1 => select(&VALUES[..]).prop_map(|value| words(&["ECHO", value])),
        1 => select(vec![&["PING"][..], &["PING", "hello"], &["SELECT", "0"]]).prop_map(words),
    ]
}

fn removing() -> impl Strategy<Value = Command> {
    (select(&["DEL", "UNLINK"][..]), vec(select(&KEYS[..]), 1..4))
        .prop_map(|(name, keys)| words(&[&[name], &keys[..]].concat()))
}

/// Commands that Redis refuses. `HELLO` is left out: between `MULTI` and `EXEC` the server refuses it, and Redis does not.
fn refused() -> impl Strategy<Value = Command> {
    let key = || select(&KEYS[..]);
    let number = || select(&WRONG_NUMBERS[..]);
    let arity = select(vec![
        &["SETEX", "{1}", "[1]"][..],
        &["SETEX", "{1}", "[1]", "a", "b"],
        &["PSETEX", "{1}"],
        &["SET", "{1}"],
        &["GET"],
        &["GET", "{1}", "{2}"],
        &["TTL"],
        &["PTTL", "{1}", "{2}"],
        &["EXPIRETIME"],
        &["EXPIRE", "{1}"],
        &["PEXPIREAT", "{1}"],
        &["PERSIST"],
        &["EXISTS"],
        &["DEL"],
        &["UNLINK"],
        &["TYPE"],
        &["ECHO"],
        &["PING", "a", "b"],
        &["SELECT"],
        &["SELECT", "one"],
        &["MULTI", "now"],
    ]);
    let syntax = select(vec![
        &["EX"][..],
        &["EX", "[1]", "PX", "[1]000"],
        &["EX", "[1]", "EXAT", "<1>"],
        &["NX", "XX", "EX", "[1]"],
        &["EX", "[1]", "KEEPTTL"],
        &["KEEPTTL", "PX", "[1]000"],
        &["EX", "[1]", "TOMORROW"],
        &["PXAT"],
    ]);
    let unknown = select(vec![
        &["NOSUCH"][..],
        &["nosuch", "{1}", "7"],
        &["SETEXX", "{1}", "[1]", "a"],
        &["NOSUCH", "a\r\nb"],
    ]);
    prop_oneof![
        (key(), number()).prop_map(|(key, number)| words(&["SETEX", key, number, "a"])),
        (key(), number()).prop_map(|(key, number)| words(&["PSETEX", key, number, "a"])),
        (key(), select(&["EX", "PX", "EXAT", "PXAT"][..]), number())
            .prop_map(|(key, unit, number)| words(&["SET", key, "a", unit, number])),
        arity.prop_map(words),
        syntax.prop_map(|rest| words(&[&["SET", "{2}", "a"], rest].concat())),
        unknown.prop_map(words),
    ]
}

/// `MULTI`, commands, and what ends it.
fn transaction() -> impl Strategy<Value = Batch> {
    let end = select(&["EXEC", "EXEC", "EXEC", "DISCARD"][..]);
    let commands = vec(
        prop_oneof![9 => any_command(), 1 => Just(words(&["MULTI"]))],
        0..6,
    );
    (commands, end).prop_map(|(commands, end)| {
        let begin = words(&["MULTI"]);
        let end = words(&[end]);
        [begin].into_iter().chain(commands).chain([end]).collect()
    })
}

/// Parts of a transaction without the rest.
fn stray() -> impl Strategy<Value = Command> {
    select(vec![&["EXEC"][..], &["DISCARD"], &["MULTI"], &["UNWATCH"]]).prop_map(words)
}

fn words(words: &[&str]) -> Command {
    words.iter().map(ToString::to_string).collect()
}
