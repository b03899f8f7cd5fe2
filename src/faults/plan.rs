//! Which faults come in which order, and how long they last.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};

use crate::proxy::{Mode, Place};

/// A fault, without its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// On the way to a server: of one daemon, or of all and the producers.
    Way(Server, Net, Who),
    /// SIGKILL, and a start with what is on the disk; Redis has nothing there.
    ServerKilled(Server),
    /// SIGSTOP and SIGCONT.
    ServerFrozen(Server),
    /// `KILL` and `CLIENT KILL` of every connection.
    ConnectionsKilled(Server),
    /// `FLUSHALL`.
    RedisFlushed,
    /// `notify-keyspace-events` is empty.
    EventsOff,
    /// Redis leads to another server, which is empty.
    Failover,
    /// `SET GLOBAL read_only = 1`.
    ReadOnly,
    /// Another session locks rows that fall due.
    RowsLocked,
    /// Another session locks rows in the opposite order.
    Deadlocks,
    /// SIGKILL of one daemon.
    DaemonKilled,
    /// SIGKILL of every daemon.
    AllKilled,
    /// All daemons are killed soon after they started, three times.
    RestartStorm,
    /// SIGTERM in the middle of runs, and another start.
    DaemonStopped,
    /// SIGSTOP and SIGCONT, within the lease.
    DaemonFrozen,
    /// SIGSTOP, and SIGCONT after the lease.
    DaemonFrozenBeyondItsLease,
    /// SIGKILL at the beginning of a run.
    KilledMidRun,
    /// The web server answers 503.
    TargetsRefuse,
    /// Answers of the web server are lost.
    TargetsCut,
    /// At one of the crash points.
    CrashPoint(usize, Death),
    /// A producer's process is killed at one of the points of producers.
    ProducerKilled(usize),
    /// At one of the points of producers, the connection of all producers that share it.
    ProducerCut(usize),
    /// The lease of a daemon is not renewed, while its runs go on.
    RenewalsLost,
}

/// The end of a way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Server {
    /// MariaDB.
    Ledger,
    /// Redis, or the RESP server.
    Redis,
}

/// What happens on a way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Net {
    /// All connections close.
    Cut,
    /// Bytes are withheld for some time.
    Withheld(Mode),
}

/// Whose way is disturbed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// One of the daemons.
    OneDaemon,
    /// All daemons and the producers.
    All,
}

/// What ends at a crash point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Death {
    /// SIGKILL of the daemon.
    Process,
    /// The connection alone.
    Connection,
}

/// A statement or command at which something stops.
#[derive(Debug, Clone, Copy)]
pub struct Point {
    /// As in `PROTOCOL.md`.
    pub name: &'static str,
    pub server: Server,
    /// A part of the statement.
    pub text: &'static str,
    pub place: Place,
}

const fn point(name: &'static str, server: Server, text: &'static str, place: Place) -> Point {
    Point {
        name,
        server,
        text,
        place,
    }
}

const CLAIM: &str = "owner = ?, daemon = ?, claimed_at";
const CLAIMED: &str = "AS anew FROM";
const COMPLETE: &str = "SET status = 1, finished_at";
const RETRY: &str = "SET retry_at = CAST(? AS SIGNED) / 1000, crashes = 0, last_error";
const RENEW: &str = "SET lease_until = UNIX_TIMESTAMP(NOW(3)) + CAST";
const CREATE: &str = "INSERT INTO `tb_time_limit_task` (`key`, start_time, end_time, max_attempts";
const CANCEL: &str = "IGNORE INDEX (ix_due) SET sts = 1";

/// Where daemons die.
pub const CRASH_POINTS: [Point; 8] = [
    point(
        "event received, not claimed",
        Server::Ledger,
        CLAIM,
        Place::Unsent,
    ),
    point(
        "claim applied, reply lost",
        Server::Ledger,
        CLAIM,
        Place::Unanswered,
    ),
    point(
        "claimed, not started",
        Server::Ledger,
        CLAIMED,
        Place::Unsent,
    ),
    point(
        "run done, not settled",
        Server::Ledger,
        COMPLETE,
        Place::Unsent,
    ),
    point(
        "settle committed, reply lost",
        Server::Ledger,
        COMPLETE,
        Place::Unanswered,
    ),
    point("retry write lost", Server::Ledger, RETRY, Place::Unsent),
    point(
        "retry committed, reply lost",
        Server::Ledger,
        RETRY,
        Place::Unanswered,
    ),
    point("renewal lost", Server::Ledger, RENEW, Place::Unsent),
];

/// Where producers die.
pub const PRODUCER_POINTS: [Point; 7] = [
    point(
        "create: before commit",
        Server::Ledger,
        CREATE,
        Place::Unsent,
    ),
    point(
        "create: commit sent, reply lost",
        Server::Ledger,
        CREATE,
        Place::Unanswered,
    ),
    point(
        "create: committed, not armed",
        Server::Redis,
        "lapsed:",
        Place::Unsent,
    ),
    point(
        "create: armed, reply lost",
        Server::Redis,
        "lapsed:",
        Place::Unanswered,
    ),
    point(
        "cancel: before commit",
        Server::Ledger,
        CANCEL,
        Place::Unsent,
    ),
    point(
        "cancel: commit sent, reply lost",
        Server::Ledger,
        CANCEL,
        Place::Unanswered,
    ),
    point(
        "cancel: committed, not deleted",
        Server::Redis,
        "DEL\r\n",
        Place::Unsent,
    ),
];

/// The points of a producer that creates.
const CREATING: usize = 4;

const MODES: [Mode; 6] = [
    Mode::Delay(Duration::from_millis(200)),
    Mode::NoQuestions,
    Mode::NoAnswers,
    Mode::Blackhole,
    Mode::Trickle,
    Mode::Refuse,
];

impl Fault {
    /// Every fault of a rig with servers.
    pub fn of_servers() -> Vec<Self> {
        let mut all = vec![
            Self::RedisFlushed,
            Self::EventsOff,
            Self::Failover,
            Self::ReadOnly,
            Self::RowsLocked,
            Self::Deadlocks,
            Self::DaemonKilled,
            Self::AllKilled,
            Self::RestartStorm,
            Self::DaemonStopped,
            Self::DaemonFrozen,
            Self::DaemonFrozenBeyondItsLease,
            Self::KilledMidRun,
            Self::TargetsRefuse,
            Self::TargetsCut,
            Self::RenewalsLost,
        ];
        for server in [Server::Ledger, Server::Redis] {
            all.extend([
                Self::ServerKilled(server),
                Self::ServerFrozen(server),
                Self::ConnectionsKilled(server),
            ]);
            for who in [Who::OneDaemon, Who::All] {
                all.push(Self::Way(server, Net::Cut, who));
                all.extend(MODES.map(|mode| Self::Way(server, Net::Withheld(mode), who)));
            }
        }
        for death in [Death::Process, Death::Connection] {
            all.extend((0..CRASH_POINTS.len()).map(|point| Self::CrashPoint(point, death)));
        }
        all.extend((0..CREATING).map(Self::ProducerKilled));
        all.extend((0..PRODUCER_POINTS.len()).map(Self::ProducerCut));
        all
    }

    /// Every fault of a rig on a file, whose clients come through the RESP server.
    pub fn of_file() -> Vec<Self> {
        let mut all = vec![
            Self::DaemonKilled,
            Self::RestartStorm,
            Self::DaemonStopped,
            Self::DaemonFrozen,
            Self::DaemonFrozenBeyondItsLease,
            Self::KilledMidRun,
            Self::TargetsRefuse,
            Self::TargetsCut,
            Self::RowsLocked,
        ];
        all.push(Self::Way(Server::Redis, Net::Cut, Who::All));
        all.extend(MODES.map(|mode| Self::Way(Server::Redis, Net::Withheld(mode), Who::All)));
        all
    }

    /// Whether one daemon lives through it; `alone`: there is no other.
    pub fn leaves_one_alive(self, alone: bool) -> bool {
        let kills_one = matches!(
            self,
            Self::DaemonKilled
                | Self::DaemonStopped
                | Self::KilledMidRun
                | Self::CrashPoint(_, Death::Process)
        );
        let kills_all = matches!(self, Self::AllKilled | Self::RestartStorm);
        !(kills_all || alone && kills_one)
    }

    /// For the report.
    pub fn name(self) -> String {
        let server = |server| match server {
            Server::Ledger => "ledger",
            Server::Redis => "Redis",
        };
        match self {
            Self::Way(to, net, who) => {
                let who = match who {
                    Who::OneDaemon => "of one daemon",
                    Who::All => "of all",
                };
                let net = match net {
                    Net::Cut => "cut",
                    Net::Withheld(Mode::Delay(_)) => "slow",
                    Net::Withheld(Mode::NoQuestions) => "half-open, questions lost",
                    Net::Withheld(Mode::NoAnswers) => "half-open, answers lost",
                    Net::Withheld(Mode::Blackhole) => "a black hole",
                    Net::Withheld(Mode::Trickle) => "a trickle",
                    Net::Withheld(Mode::Refuse) => "refused",
                    Net::Withheld(Mode::Pass) => "open",
                };
                format!("way to the {} {who}: {net}", server(to))
            }
            Self::ServerKilled(it) => format!("{} killed (SIGKILL) and started", server(it)),
            Self::ServerFrozen(it) => format!("{} paused (SIGSTOP)", server(it)),
            Self::ConnectionsKilled(it) => {
                format!("connections to the {} killed by the server", server(it))
            }
            Self::CrashPoint(at, Death::Process) => {
                format!("daemon killed: {}", CRASH_POINTS[at].name)
            }
            Self::CrashPoint(at, Death::Connection) => {
                format!("connection cut: {}", CRASH_POINTS[at].name)
            }
            Self::ProducerKilled(at) => format!("producer killed: {}", PRODUCER_POINTS[at].name),
            Self::ProducerCut(at) => format!("producer cut: {}", PRODUCER_POINTS[at].name),
            other => {
                let name = format!("{other:?}");
                let spaced = name.chars().flat_map(|letter| {
                    let space = letter.is_uppercase().then_some(' ');
                    space.into_iter().chain(letter.to_lowercase())
                });
                spaced.collect::<String>().trim().to_owned()
            }
        }
    }
}

/// Faults one after the other, without an end: each once in random order, then each again.
pub struct Plan {
    all: Vec<Fault>,
    left: Vec<Fault>,
    /// For the lengths of the faults, and whom they hit.
    pub random: StdRng,
}

impl Plan {
    pub fn new(seed: u64, all: Vec<Fault>) -> Self {
        Self {
            all,
            left: Vec::new(),
            random: StdRng::seed_from_u64(seed),
        }
    }

    pub fn next_fault(&mut self) -> Fault {
        if self.left.is_empty() {
            self.left = self.all.clone();
            self.left.shuffle(&mut self.random);
        }
        self.left.pop().expect("there is a fault")
    }

    /// A time between these.
    pub fn time(&mut self, from_ms: u64, to_ms: u64) -> Duration {
        Duration::from_millis(self.random.random_range(from_ms..=to_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_decides_the_order_and_no_fault_is_left_out() {
        let all = Fault::of_servers();
        let plan = |seed| {
            let mut plan = Plan::new(seed, all.clone());
            all.iter().map(|_| plan.next_fault()).collect::<Vec<_>>()
        };
        assert_eq!(plan(1), plan(1));
        assert_ne!(plan(1), plan(2));
        assert!(all.iter().all(|fault| plan(1).contains(fault)));
    }
}
