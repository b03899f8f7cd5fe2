//! What an input costs: memory and time in proportion to its length, however it is made.
//!
//! Memory is what the thread allocates, time is what the processor spends on the thread: neither depends on what else the
//! machine does.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;

use lapsed::contract::{TaskFilter, TaskSpec};
use lapsed::engine::fuzzing::open_token;
use lapsed::handler::fuzzing::{read_output, read_reply};
use lapsed_cli::fuzzing::{php_json, read_job, task_message};
use lapsed_core::config::Config;
use lapsed_core::ledger::ListCursor;
use lapsed_core::task::{
    Due, Envelope, KeyName, Recurrence, Scope, TaskKey, Traceparent, UnixMs, parse_length,
};
use lapsed_server::resp::fuzzing::{glob_matches, read_commands};
use rustix::time::{ClockId, clock_gettime};

/// Counts what each thread allocates.
struct Counting;

thread_local! {
    static ALLOCATED: Cell<usize> = const { Cell::new(0) };
    static LIVE: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

fn took(bytes: usize) {
    // A thread that ends has no counters any more.
    let _ = ALLOCATED.try_with(|count| count.set(count.get().wrapping_add(bytes)));
    let _ = LIVE.try_with(|live| {
        live.set(live.get().wrapping_add(bytes));
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(live.get())));
    });
}

fn gave(bytes: usize) {
    let _ = LIVE.try_with(|live| live.set(live.get().saturating_sub(bytes)));
}

// SAFETY: every call is that of the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        took(layout.size());
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        gave(layout.size());
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        gave(layout.size());
        took(size);
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What a reader does with an input.
type Read = fn(&[u8]);

/// An input that grows, and what it may cost.
struct Budget {
    name: &'static str,
    read: Read,
    /// Makes an input of about this length.
    input: fn(usize) -> Vec<u8>,
    /// Most bytes of memory at a time, for each byte of the input.
    memory: usize,
}

/// Memory that does not depend on the input, in bytes.
const BASE_BYTES: usize = 64 * 1024;

/// Sum of all allocations for each byte that a reader may hold: buffers grow by doubling, and a problem is written twice.
const ALLOCATED_PER_HELD: usize = 6;

/// Length of the inputs whose memory is counted, once, twice and four times.
const COUNTED: usize = 16 * 1024;

/// The lengths whose times are compared.
const SHORT: usize = 4 * 1024;
const LONG: usize = 8 * SHORT;

/// How much longer an input of eight times the length may take. In proportion it is 8, by the square 64.
const TIME_RATIO_MAX: u32 = 24;

/// Below this, a time is mostly that of the first call.
const TIME_MIN: Duration = Duration::from_micros(100);

fn text(input: &[u8]) -> &str {
    std::str::from_utf8(input).expect("the input is text")
}

fn key(input: &[u8]) {
    drop(KeyName::parse(input));
    drop(TaskKey::parse(text(input)));
    drop(text(input).parse::<Scope>());
}

fn span(input: &[u8]) {
    drop(parse_length(text(input)).map_err(|error| error.to_string()));
    drop(Due::parse_delay(text(input)).map_err(|error| error.to_string()));
    drop(Due::parse_moment(text(input)).map_err(|error| error.to_string()));
}

fn cron(input: &[u8]) {
    drop(Recurrence::cron(text(input)).map_err(|error| error.to_string()));
}

fn task(input: &[u8]) {
    let now = UnixMs(1_793_750_400_000);
    let spec = TaskSpec::from_json(input);
    drop(
        spec.and_then(|spec| spec.resolve(now))
            .map_err(|error| error.to_string()),
    );
    let filter = serde_json::from_slice::<TaskFilter>(input);
    drop(filter.map(|filter| filter.resolve(now).map_err(|error| error.to_string())));
    drop(
        text(input)
            .parse::<Recurrence>()
            .map_err(|error| error.to_string()),
    );
    drop(Envelope::open(Some(text(input).to_owned())));
}

fn place(input: &[u8]) {
    drop(text(input).parse::<ListCursor>());
    drop(
        text(input)
            .parse::<Traceparent>()
            .map_err(|error| error.to_string()),
    );
    drop(open_token(text(input), &[7; 32]));
}

fn settings(input: &[u8]) {
    drop(Config::from_toml(text(input)).map_err(|error| error.to_string()));
}

fn commands(input: &[u8]) {
    drop(read_commands(&[input], false));
}

fn commands_by_bytes(input: &[u8]) {
    let pieces: Vec<&[u8]> = input.chunks(1).collect();
    drop(read_commands(&pieces, false));
}

fn commands_of_strangers(input: &[u8]) {
    drop(read_commands(&[input], true));
}

/// The longest pattern, with as many stars as it has room for.
fn pattern(input: &[u8]) {
    let pattern = format!("{}b", "*a".repeat(500));
    let _ = glob_matches(pattern.as_bytes(), &input[..input.len() / 64]);
    let _ = glob_matches(input, b"Order@close");
}

fn reply(input: &[u8]) {
    drop(read_reply(500, http::HeaderMap::new(), input));
}

fn output_by_bytes(input: &[u8]) {
    let pieces: Vec<&[u8]> = input.chunks(1).collect();
    drop(read_output(&pieces));
}

fn php(input: &[u8]) {
    drop(php_json(input));
    drop(task_message(input));
}

fn jobs(input: &[u8]) {
    let fields: [&[u8]; 7] = [input, b"send", input, b"1", b"", b"", b""];
    drop(read_job("bullmq", "7353842073600000", b"1", &fields));
    drop(read_job("sidekiq", "1795371600", input, &[]));
    drop(read_job("seed001", "1795371600", input, &[]));
    drop(read_job("asynq", "1795371600", b"1", &[input]));
}

fn repeated(before: &str, part: &str, after: &str, bytes: usize) -> Vec<u8> {
    format!("{before}{}{after}", part.repeat(bytes / part.len())).into_bytes()
}

macro_rules! budgets {
    ($($read:ident $memory:literal: $before:literal $part:literal $after:literal;)*) => {
        [$(Budget {
            name: concat!(stringify!($read), " ", $before, " ", $part),
            read: $read,
            input: |bytes| repeated($before, $part, $after, bytes),
            memory: $memory,
        }),*]
    };
}

/// A reader, the memory that each byte may take, and the beginning, the repeated part and the end of the input.
fn budgets() -> Vec<Budget> {
    let budgets = budgets! {
        key 1: "" "@" "";
        key 1: "C@m@" "x" "";
        span 2: "" "9" "s";
        span 2: "" "1h " "";
        span 2: "PT" "1H" "";
        span 2: "2026-11-21T20:00:00." "0" "Z";
        cron 8: "" "1," "1 * * * *";
        cron 24: "" "* " "";
        cron 8: "0 0 " "15W," "L * *";
        cron 8: "0 0 * * " "5#2," "1";
        cron 8: "0-" "0" " * * * *";
        task 8: "{\"payload\":" "[" "";
        task 8: "{\"payload\":" "{\"a\":" "";
        task 8: "{\"key\":\"C@m\",\"in\":\"1s\",\"payload\":[" "1," "1]}";
        task 8: "{\"key\":\"C@m\",\"in\":\"1s\",\"payload\":" "9" "}";
        task 8: "{\"key\":\"C@m\",\"in\":\"" "9" "s\"}";
        task 8: "{\"tag\":\"" "\\u0001" "\"}";
        task 8: "{\"args\":[" "\"a\"," "\"a\"]}";
        task 8: "{" "\"tag\":\"a\"," "\"tag\":\"a\"}";
        task 8: "{" "\"b\":1," "\"b\":1}";
        task 24: "{\"key\":\"C@m\",\"cron\":\"" "1," "1 * * * *\"}";
        task 8: "{\"state\":\"" "pending," "gone\"}";
        task 8: "{\"max_attempts\":" "9" "}";
        task 8: "{\"$lapsed\":{}" " " "}";
        place 4: "key." "%41" "";
        place 4: "due." "0." "0";
        place 4: "" "0" "";
        place 4: "00-" "0" "-";
        settings 400: "" "[" "";
        settings 400: "a = " "[" "";
        settings 400: "x = \"" "a" "\"";
        settings 400: "x = " "9" "";
        settings 400: "" "# comment\n" "";
        commands 64: "" "\r\n" "";
        commands 64: "" "*0\r\n" "";
        commands 64: "" "PING\r\n" "";
        commands 64: "" "*1\r\n$4\r\nPING\r\n" "";
        commands 64: "" "*1\r\n$1048576\r\n" "";
        commands 64: "*2\r\n$3\r\nSET\r\n$16000000\r\n" "a" "";
        commands 64: "SET \"" "\\x41" "\"\r\n";
        commands 64: "" "*2147483647\r\n" "";
        commands 64: "*16384\r\n" "$0\r\n\r\n" "";
        commands_by_bytes 80: "*2\r\n$3\r\nSET\r\n$1048576\r\n" "a" "";
        commands_by_bytes 80: "SET " "a" "";
        commands_by_bytes 80: "*1" "1" "";
        commands_by_bytes 80: "" "\r\n" "";
        commands_of_strangers 64: "*2\r\n$4\r\nAUTH\r\n$16384\r\n" "a" "";
        pattern 2: "" "a" "";
        pattern 2: "" "[a" "";
        reply 8: "" "\u{1b}" "";
        reply 8: "" "a" "";
        output_by_bytes 32: "lapsed: " "a" "";
        output_by_bytes 32: "" "\n" "";
        php 80: "" "a:1:{i:0;" "";
        php 80: "a:4000:{" "i:0;N;" "}";
        php 80: "a:999999999999:{" "N;" "";
        php 80: "i:" "9" ";";
        php 80: "s:18446744073709551615:\"" "a" "\";";
        jobs 12: "" "{\"a\":" "";
        jobs 12: "[" "1," "1]";
        jobs 12: "{\"class\":\"" "\\u0001" "\",\"jid\":\"1\"}";
        jobs 12: "{\"attempts\":" "9" "}";
    };
    let mut budgets = Vec::from(budgets);
    budgets.extend([
        Budget {
            name: "settings of unknown names",
            read: settings,
            input: |bytes| numbered(bytes / 16, |number| format!("\"s{number:08}\" = 1\n")),
            memory: 400,
        },
        Budget {
            name: "settings of many routes",
            read: settings,
            input: |bytes| {
                numbered(bytes / 40, |number| {
                    format!("[[routes]]\npattern = \"C@{number:08}\"\nx=1\n")
                })
            },
            memory: 400,
        },
        Budget {
            name: "php of different keys",
            read: php,
            input: |bytes| {
                let count = bytes / 12;
                let entries = numbered(count, |number| format!("i:{number:08};N;"));
                [format!("a:{count}:{{").as_bytes(), &entries, b"}"].concat()
            },
            memory: 80,
        },
    ]);
    budgets
}

fn numbered(count: usize, part: fn(usize) -> String) -> Vec<u8> {
    (0..count).map(part).collect::<String>().into_bytes()
}

#[test]
fn memory_grows_no_faster_than_the_input() {
    let mut faults = Vec::new();
    for Budget {
        name,
        read,
        input,
        memory,
    } in budgets()
    {
        for bytes in [COUNTED, 2 * COUNTED, 4 * COUNTED] {
            let input = input(bytes);
            let (allocated, peak) = allocations(read, &input);
            let most = memory * input.len() + BASE_BYTES;
            if peak > most || allocated > ALLOCATED_PER_HELD * most {
                faults.push(format!(
                    "{name:?}, {} bytes: held {peak}, expected at most {most}; allocated {allocated}",
                    input.len()
                ));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Bytes that a call allocates, and most of them at a time.
fn allocations(read: Read, input: &[u8]) -> (usize, usize) {
    // What is made once is there now.
    read(&input[..0]);
    let (allocated, live) = (ALLOCATED.get(), LIVE.get());
    PEAK.set(live);
    read(input);
    (ALLOCATED.get() - allocated, PEAK.get() - live)
}

#[test]
fn time_grows_no_faster_than_the_input() {
    let mut faults = Vec::new();
    for Budget {
        name, read, input, ..
    } in budgets()
    {
        let (short, long) = (input(SHORT), input(LONG));
        let (short, long) = (shortest(read, &short), shortest(read, &long));
        if long > TIME_RATIO_MAX * short.max(TIME_MIN) {
            faults.push(format!(
                "{name:?}: {short:?} for {SHORT} bytes, {long:?} for {LONG}"
            ));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// The shortest time of several calls.
fn shortest(read: Read, input: &[u8]) -> Duration {
    let time = |_| {
        let begun = processor_time();
        read(input);
        processor_time() - begun
    };
    (0..4).map(time).min().expect("it is called")
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).expect("it is not negative")
}

#[test]
fn a_square_is_found() {
    fn square(input: &[u8]) {
        let same = |byte: &u8| input.iter().filter(|other| *other == byte).count();
        assert!(input.iter().take(input.len() / 8).map(same).sum::<usize>() > 0);
    }
    let (short, long) = (vec![1; SHORT], vec![1; 4 * SHORT]);
    let (short, long) = (shortest(square, &short), shortest(square, &long));
    assert!(long > 10 * short, "{short:?}, {long:?}");
    let (_, peak) = allocations(|input| drop(vec![0_u8; input.len()]), &[1; SHORT]);
    assert_eq!(peak, SHORT);
}
