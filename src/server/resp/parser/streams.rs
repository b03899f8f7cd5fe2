//! Streams of bytes: what clients sent in tests, what they could send, and garbage. However a stream is cut into pieces,
//! its commands are the same, and the buffer stays small.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::{Limits, Parser};

/// What clients in their default configuration sent to redis-server.
const RECORDED: [(&str, &[u8]); 7] = [
    ("go-redis", include_bytes!("streams/go_redis.resp")),
    ("hiredis", include_bytes!("streams/hiredis.resp")),
    ("ioredis", include_bytes!("streams/ioredis.resp")),
    ("node-redis", include_bytes!("streams/node_redis.resp")),
    ("redis-cli", include_bytes!("streams/redis_cli.resp")),
    (
        "redis-cli --pipe",
        include_bytes!("streams/redis_cli_pipe.resp"),
    ),
    ("redis-py", include_bytes!("streams/redis_py.resp")),
];

type Command = Vec<Vec<u8>>;

/// What a connection makes of a stream.
#[derive(Debug, PartialEq)]
struct Read {
    commands: Vec<Command>,
    /// Whether the rest was refused.
    refused: bool,
    /// The longest that the buffer was.
    buffered: usize,
}

/// Reads pieces as a connection does: each command leaves the buffer when it is complete.
fn read<'a>(pieces: impl Iterator<Item = &'a [u8]>, limits: &Limits) -> Read {
    let (mut parser, mut buffer) = (Parser::default(), Vec::new());
    let (mut commands, mut buffered) = (Vec::new(), 0);
    for piece in pieces {
        buffer.extend_from_slice(piece);
        buffered = buffered.max(buffer.len());
        let mut at = 0;
        loop {
            let rest = &buffer[at..];
            match parser.next(rest, limits) {
                Ok(Some(length)) => {
                    let args = parser.args(rest);
                    if !args.is_empty() {
                        commands.push(args.from(0).map(<[u8]>::to_vec).collect());
                    }
                    at += length;
                }
                Ok(None) => break,
                Err(_) => {
                    return Read {
                        commands,
                        refused: true,
                        buffered,
                    };
                }
            }
        }
        buffer.drain(..at);
    }
    Read {
        commands,
        refused: false,
        buffered,
    }
}

fn whole(stream: &[u8]) -> Read {
    read([stream].into_iter(), &Limits::DEFAULT)
}

/// Asserts that pieces of a stream are read as the whole is.
fn assert_same<'a>(expected: &Read, pieces: impl Iterator<Item = &'a [u8]>, what: &str) {
    let found = read(pieces, &Limits::DEFAULT);
    assert_eq!(found.commands, expected.commands, "{what}");
    assert_eq!(found.refused, expected.refused, "{what}");
}

/// Cuts a stream at these places.
fn cut<'a>(stream: &'a [u8], cuts: &[Index]) -> Vec<&'a [u8]> {
    let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
    places.extend([0, stream.len()]);
    places.sort_unstable();
    let pieces = places.windows(2);
    pieces.map(|ends| &stream[ends[0]..ends[1]]).collect()
}

fn encoded(command: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", command.len()).into_bytes();
    for arg in command {
        bytes.extend(format!("${}\r\n", arg.len()).as_bytes());
        bytes.extend(arg);
        bytes.extend(b"\r\n");
    }
    bytes
}

#[test]
fn recorded_streams_are_read_the_same_at_every_split() {
    for (client, stream) in RECORDED {
        let expected = whole(stream);
        assert!(!expected.refused, "{client}: {expected:?}");
        assert!(expected.commands.len() > 3, "{client}: {expected:?}");
        for place in 0..=stream.len() {
            let (one, other) = stream.split_at(place);
            let what = format!("{client}, split at {place}");
            assert_same(&expected, [one, other].into_iter(), &what);
        }
        assert_same(&expected, stream.chunks(1), client);
    }
}

#[test]
fn inline_commands_are_read_with_their_quotes() {
    let (_, stream) = RECORDED[5];
    let texts = [
        vec![&b"SETEX"[..], b"Order@close@1", b"1000", b"a b\0\n"],
        vec![b"TTL", b"Order@close@1"],
        vec![b"DEL", b"Order@close@1"],
    ];
    assert_eq!(whole(stream).commands[..3], texts);
}

#[test]
fn a_limit_holds_at_every_split() {
    let long = [&b"GET "[..], &[b'a'; 70_000], b"\r\n"].concat();
    let wide = [&b"DEL"[..], &b" a".repeat(30_000), b"\r\n"].concat();
    for stream in [long, wide, b"*1000000\r\n$3\r\nDEL\r\n".to_vec()] {
        let expected = whole(&stream);
        assert_eq!(expected.commands, Vec::<Command>::new());
        assert!(expected.refused);
        for size in [1, 7, 4096, 65_536] {
            assert_same(&expected, stream.chunks(size), &format!("in {size}"));
        }
    }
}

/// A client that never completes a command is refused before its bytes fill the memory.
#[test]
fn endless_streams_stay_within_the_limits() {
    let endless: [(&str, &[u8]); 6] = [
        ("no end of the line", b"a"),
        ("empty lines", b"\r\n"),
        ("empty arrays", b"*0\r\n"),
        ("no such arrays", b"*-1\r\n"),
        ("a header without an end", b"*1"),
        ("spaces", b"    \r\n"),
    ];
    let shorter = Limits {
        command_bytes: 256 * 1024,
        ..Limits::DEFAULT
    };
    for limits in [Limits::BEFORE_AUTH, shorter] {
        // A line may be longer than a command.
        let most = limits.command_bytes + 2 * 65_536;
        for (what, piece) in endless {
            let piece = piece.repeat(4096 / piece.len());
            let pieces = std::iter::repeat_n(piece.as_slice(), 2 * most / piece.len());
            let found = read(pieces, &limits);
            assert!(found.buffered <= most, "{what}: {} bytes", found.buffered);
            assert_eq!(found.commands, Vec::<Command>::new());
        }
        // The arguments of one command.
        let arg = b"$1000\r\n".iter().chain(&[b'a'; 1000]).chain(b"\r\n");
        let arg: Vec<u8> = arg.copied().collect();
        let header = format!("*{}\r\n", limits.args);
        let args = std::iter::repeat_n(arg.as_slice(), limits.args);
        let found = read([header.as_bytes()].into_iter().chain(args), &limits);
        assert!(found.buffered <= most, "{} bytes", found.buffered);
    }
}

fn arg() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        select(vec![
            &b""[..],
            b"\r\n",
            b"$3\r\n",
            b"*1\r\n",
            b"SETEX",
            b"\0"
        ])
        .prop_map(<[u8]>::to_vec),
        vec(any::<u8>(), 0..40),
        (0..3000usize).prop_map(|length| vec![b'x'; length]),
    ]
}

/// Pieces of the protocol in any order, and any bytes.
fn garbage() -> impl Strategy<Value = Vec<u8>> {
    let word = select(vec![
        &b"*"[..],
        b"$",
        b"\r\n",
        b"\n",
        b"\r",
        b"0",
        b"1",
        b"2",
        b"3",
        b"-1",
        b"9223372036854775807",
        b"2147483648",
        b" ",
        b"\"",
        b"'",
        b"\\x4",
        b"GET",
        b"+OK\r\n",
        b"*1\r\n$4\r\nPING\r\n",
        b"\0",
    ]);
    let part = prop_oneof![
        9 => word.prop_map(<[u8]>::to_vec),
        1 => vec(any::<u8>(), 0..20),
    ];
    vec(part, 0..60).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn commands_are_read_as_they_were_written(
        commands in vec(vec(arg(), 1..8), 0..20),
        cuts in vec(any::<Index>(), 0..20),
    ) {
        let stream: Vec<u8> = commands.iter().flat_map(|command| encoded(command)).collect();
        let found = read(cut(&stream, &cuts).into_iter(), &Limits::DEFAULT);
        prop_assert_eq!(&found.commands, &commands);
        prop_assert!(!found.refused);
    }

    #[test]
    fn garbage_is_read_the_same_at_every_split(
        stream in garbage(),
        cuts in vec(any::<Index>(), 0..20),
    ) {
        let expected = whole(&stream);
        assert_same(&expected, cut(&stream, &cuts).into_iter(), "cut");
        assert_same(&expected, stream.chunks(1), "byte by byte");
    }
}
