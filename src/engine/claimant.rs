//! Daemon names in claimed rows, and the check whether the process behind such a name is gone.
//!
//! A name is `host:pid/place.start`. `place` is a hash of the boot of the machine, its host name and the PID and time
//! namespaces of the process; `start` is when the process started, in clock ticks since the boot. Within one place, the
//! kernel knows whether that process still exists. Nothing is known about a name from any other place, nor about a
//! plain `host:pid`, which a daemon uses if it cannot read these facts: there the lease decides.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::format::hex;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use sha2::{Digest, Sha256};

/// Maximum length of a daemon's name: the width of its column.
const NAME_CHARS_MAX: usize = 64;

/// Number of hexadecimal digits of a place.
const PLACE_DIGITS: usize = 12;

/// Index of the start time among the fields after the program name in `/proc/PID/stat`; the first is the state.
const STAT_START: usize = 19;

/// The processes that this process can see.
#[derive(Debug, Clone)]
pub struct Processes {
    /// `/proc`, except in tests.
    proc: PathBuf,
    /// True if a process with this id exists here.
    exists: fn(Pid) -> bool,
    host: String,
    own: Option<Claimer>,
    own_pid: u32,
}

/// A claiming process, parsed from its name.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Claimer {
    pid: Pid,
    place: String,
    start: u64,
}

impl Processes {
    /// The processes of this machine.
    pub fn here() -> Self {
        let host = rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned();
        Self::of(PathBuf::from("/proc"), exists, host, std::process::id())
    }

    fn of(proc: PathBuf, exists: fn(Pid) -> bool, host: String, own_pid: u32) -> Self {
        let own = Claimer::own(&proc, &host, own_pid);
        Self {
            proc,
            exists,
            host,
            own,
            own_pid,
        }
    }

    /// The name of this process. A long host name is cut at the front.
    pub fn own_name(&self) -> String {
        let process = match &self.own {
            Some(Claimer { pid, place, start }) => {
                format!(":{}/{place}.{start}", pid.as_raw_nonzero())
            }
            None => format!(":{}", self.own_pid),
        };
        let room = NAME_CHARS_MAX.saturating_sub(process.chars().count());
        let beyond = self.host.chars().count().saturating_sub(room);
        self.host.chars().skip(beyond).collect::<String>() + &process
    }

    /// True if the process of this name certainly no longer exists. False if that cannot be known.
    pub fn is_gone(&self, name: &str) -> bool {
        let (Some(own), Some(claimer)) = (&self.own, Claimer::parse(name)) else {
            return false;
        };
        if claimer.place != own.place {
            return false;
        }
        // Not by `/proc` alone, which may hide the processes of other users.
        if !(self.exists)(claimer.pid) {
            return true;
        }
        let directory = self.proc.join(claimer.pid.as_raw_nonzero().to_string());
        match Stat::read(&directory.join("stat")) {
            Some(stat) if stat.start != claimer.start => true,
            Some(stat) => stat.has_ended && all_have_ended(&directory.join("task")),
            None => false,
        }
    }
}

impl Claimer {
    /// This process; `None` if one of its facts cannot be read.
    fn own(proc: &Path, host: &str, pid: u32) -> Option<Self> {
        let own = proc.join("self");
        let status = fs::read_to_string(own.join("status")).ok()?;
        let in_namespaces = status
            .lines()
            .find_map(|line| line.strip_prefix("NSpid:"))?;
        // More than one: this `/proc` belongs to another PID namespace, with other process ids.
        if in_namespaces.trim() != pid.to_string() {
            return None;
        }
        let boot = fs::read_to_string(proc.join("sys/kernel/random/boot_id")).ok()?;
        let pids = fs::read_link(own.join("ns/pid")).ok()?;
        let times = match fs::read_link(own.join("ns/time")) {
            Ok(times) => times,
            // An old kernel without time namespaces.
            Err(error) if error.kind() == ErrorKind::NotFound => PathBuf::new(),
            Err(_) => return None,
        };
        let facts = [boot.trim(), host, pids.to_str()?, times.to_str()?];
        if facts[0].is_empty() {
            return None;
        }
        let digest = Sha256::digest(facts.join("\n"));
        let mut place = hex(digest);
        place.truncate(PLACE_DIGITS);
        Some(Self {
            pid: Pid::from_raw(pid.cast_signed())?,
            place,
            start: Stat::read(&own.join("stat"))?.start,
        })
    }

    /// Parses a name that [`Processes::own_name`] wrote; `None` for any other name.
    fn parse(name: &str) -> Option<Self> {
        let (process, proof) = name.rsplit_once('/')?;
        let (_, pid) = process.rsplit_once(':')?;
        let (place, start) = proof.split_once('.')?;
        let is_hex = |c: char| matches!(c, '0'..='9' | 'a'..='f');
        if place.len() != PLACE_DIGITS || !place.chars().all(is_hex) {
            return None;
        }
        let number = |text: &str| -> Option<u64> {
            let number: u64 = text.parse().ok()?;
            (number.to_string() == text).then_some(number)
        };
        Some(Self {
            pid: Pid::from_raw(i32::try_from(number(pid)?).ok()?)?,
            place: place.to_owned(),
            start: number(start)?,
        })
    }
}

/// State of a process or a thread, as the kernel reports it.
struct Stat {
    has_ended: bool,
    start: u64,
}

impl Stat {
    fn read(path: &Path) -> Option<Self> {
        let text = fs::read_to_string(path).ok()?;
        // The program name is in parentheses, and may contain parentheses itself.
        let (_, fields) = text.rsplit_once(") ")?;
        let mut fields = fields.split_ascii_whitespace();
        let state = fields.next()?;
        Some(Self {
            // A zombie, or dead.
            has_ended: matches!(state, "Z" | "X"),
            start: fields.nth(STAT_START - 1)?.parse().ok()?,
        })
    }
}

/// True if every thread has ended. The first thread of a process may be a zombie while others run.
fn all_have_ended(threads: &Path) -> bool {
    let Ok(threads) = fs::read_dir(threads) else {
        return false;
    };
    let mut threads = threads.peekable();
    threads.peek().is_some()
        && threads.all(|thread| {
            let stat = thread.map(|thread| Stat::read(&thread.path().join("stat")));
            matches!(stat, Ok(Some(stat)) if stat.has_ended)
        })
}

fn exists(pid: Pid) -> bool {
    test_kill_process(pid) != Err(Errno::SRCH)
}

#[cfg(test)]
mod tests;
