//! The log, and other lines on stderr.
//!
//! An error of writing is never more than a lost line. A daemon does not wait for its log either: a thread writes the
//! lines, and those that do not fit into its queue are dropped and counted.

use std::fmt::{self, Arguments};
use std::io::{self, IsTerminal as _, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;
use std::time::Duration;

use clap::ValueEnum;
use lapsed::task::on_one_line;
use tracing::field::Field;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt as _;
use tracing_subscriber::fmt::format::{Writer, debug_fn};

/// Maximum size of the lines that wait to be written, in bytes.
const WAITING_MAX: usize = 1 << 20;

/// What a waiting line costs beside its text, in bytes.
const LINE_COST: usize = 64;

/// Longest wait for the lines to be written when the daemon ends.
const FLUSH_MAX: Duration = Duration::from_secs(1);

/// The filter if `LAPSED_LOG` is not set.
const FILTER: &str = "info,sqlx=warn";

#[derive(Clone, Copy, ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
}

#[derive(Clone, Copy, ValueEnum)]
pub enum Color {
    Auto,
    Always,
    Never,
}

/// Prints a line on stderr, as [`write_line`] does.
macro_rules! stderr_line {
    ($($text:tt)*) => {
        $crate::log::write_line(format_args!($($text)*))
    };
}
pub(crate) use stderr_line;

/// Prints a line on stderr. An error of writing is ignored.
pub fn write_line(text: Arguments<'_>) {
    // In one write, so that lines of several programs do not mix.
    let _ = io::stderr().write_all(format!("{text}\n").as_bytes());
}

/// Starts logging. `LAPSED_LOG` is a filter of tracing, e.g. `info` or `lapsed::engine=debug`.
pub fn start(format: LogFormat, color: Color) {
    let filter = std::env::var("LAPSED_LOG").unwrap_or_else(|_| FILTER.to_owned());
    let filter = EnvFilter::try_new(&filter).unwrap_or_else(|error| {
        stderr_line!("warning: LAPSED_LOG: {error}; using `info`");
        EnvFilter::new(FILTER)
    });
    let ansi = match color {
        Color::Auto => io::stderr().is_terminal(),
        Color::Always => true,
        Color::Never => false,
    };
    let log = tracing_subscriber::fmt()
        .with_writer(|| Line)
        // It would print an error of writing on stderr, and panic if that fails too.
        .log_internal_errors(false)
        .with_env_filter(filter)
        .with_ansi(ansi);
    match format {
        LogFormat::Text => {
            let fields = debug_fn(write_field).delimited(" ");
            log.with_target(false).fmt_fields(fields).init();
        }
        LogFormat::Json => log.json().flatten_event(true).init(),
    }
}

/// Writes a field of the text log. Texts of other programs stay on the line of their entry.
fn write_field(writer: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug) -> fmt::Result {
    let text = format!("{value:?}");
    let text = on_one_line(&text);
    match (field.name(), writer.has_ansi_escapes()) {
        ("message", _) => write!(writer, "{text}"),
        (name, true) => write!(writer, "\u{1b}[3m{name}\u{1b}[0m\u{1b}[2m=\u{1b}[0m{text}"),
        (name, false) => write!(writer, "{name}={text}"),
    }
}

/// The thread that writes, once there is one.
static THREAD: OnceLock<Sender<Message>> = OnceLock::new();

/// Size of the lines that wait for the thread, in bytes.
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// Number of lines that were lost and not reported yet.
static LOST: AtomicU64 = AtomicU64::new(0);

enum Message {
    Line(Vec<u8>),
    Flush(SyncSender<()>),
}

/// From now on a thread writes the lines of the log: a reader that stops reading, such as a terminal after Ctrl-S, delays
/// no task.
pub fn write_from_a_thread() {
    let (sender, messages) = channel();
    let thread = thread::Builder::new().name("lapsed-log".to_owned());
    match thread.spawn(move || write_messages(&messages)) {
        // A second one would be of another daemon in this process, and ends as nothing is sent to it.
        Ok(_) => drop(THREAD.set(sender)),
        Err(error) => tracing::warn!(
            %error,
            "cannot start the thread that writes the log: the daemon waits for what reads its log"
        ),
    }
}

/// Waits until the lines so far are written, for at most a second.
pub fn flush() {
    let Some(thread) = THREAD.get() else {
        return;
    };
    let (written, wait) = sync_channel(1);
    if thread.send(Message::Flush(written)).is_ok() {
        // What reads the log may have stopped reading.
        let _ = wait.recv_timeout(FLUSH_MAX);
    }
}

/// One line, which `tracing` writes in one piece.
struct Line;

impl Write for Line {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let Some(thread) = THREAD.get() else {
            let _ = io::stderr().write_all(line);
            return Ok(line.len());
        };
        let cost = line.len() + LINE_COST;
        let waiting = WAITING.fetch_add(cost, Ordering::Relaxed);
        let fits = waiting + cost <= WAITING_MAX;
        if !fits || thread.send(Message::Line(line.to_vec())).is_err() {
            WAITING.fetch_sub(cost, Ordering::Relaxed);
            LOST.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn write_messages(messages: &Receiver<Message>) {
    for message in messages {
        let line = match message {
            Message::Line(line) => line,
            Message::Flush(written) => {
                // The daemon may have stopped waiting.
                let _ = written.send(());
                continue;
            }
        };
        let is_written = io::stderr().write_all(&line).is_ok();
        let cost = line.len() + LINE_COST;
        let waiting = WAITING.fetch_sub(cost, Ordering::Relaxed) - cost;
        match is_written {
            false => {
                LOST.fetch_add(1, Ordering::Relaxed);
            }
            // Once it can be read again.
            true if waiting == 0 => match LOST.swap(0, Ordering::Relaxed) {
                0 => {}
                lines => tracing::warn!(
                    lines,
                    "lines of the log were lost: stderr could not be written, or was not read"
                ),
            },
            true => {}
        }
    }
}
