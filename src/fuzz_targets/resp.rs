//! Commands of Redis clients, as arrays and as inline lines.

use lapsed_server::resp::fuzzing::{Read, read_commands};

/// A line and the longest command of a client without a password, and what arrives with them.
const BUFFERED_MAX: usize = 3 * 64 * 1024;

pub fn run(input: &[u8]) {
    let (first, stream) = input.split_first().unwrap_or((&0, &[]));
    let before_auth = first % 2 == 0;
    let whole = read_commands(&[stream], before_auth);
    let size = 1 + usize::from(*first) / 2 % 16;
    let pieces: Vec<&[u8]> = stream.chunks(size).collect();
    let read = read_commands(&pieces, before_auth);
    assert_eq!(read.commands, whole.commands, "in pieces of {size}");
    assert_eq!(read.refused, whole.refused, "in pieces of {size}");
    if before_auth {
        assert!(read.buffered <= BUFFERED_MAX, "{} bytes", read.buffered);
    }
    if let Some(problem) = &whole.refused {
        assert!(problem.len() < 100 && problem.is_ascii(), "{problem}");
        assert!(!problem.contains(['\r', '\n']), "{problem:?}");
    }
    check_again(&whole);
    assert!(
        whole.held <= 64 * stream.len() + 4096,
        "{} bytes",
        whole.held
    );
}

/// Commands that are written as arrays are read as they were.
fn check_again(read: &Read) {
    let mut stream = Vec::new();
    for command in read.commands.iter().filter(|command| !command.is_empty()) {
        stream.extend(format!("*{}\r\n", command.len()).as_bytes());
        for arg in command {
            stream.extend(format!("${}\r\n", arg.len()).as_bytes());
            stream.extend_from_slice(arg);
            stream.extend_from_slice(b"\r\n");
        }
    }
    let again = read_commands(&[&stream], false);
    assert_eq!(again.refused, None);
    assert_eq!(again.commands, read.commands);
}
