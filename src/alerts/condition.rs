//! Conditions: what is wrong, judged by the figures of a daemon.

use std::time::Duration;

use crate::config::AlertsConfig;
use crate::telemetry::history::Minute;

/// Starts by the sweep below this number are no pattern.
const SWEPT_MIN: u64 = 10;

/// What may be wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// Tasks start late.
    Late,
    /// A due task is not started.
    Overdue,
    /// Tasks die.
    Dead,
    /// The sweep starts tasks whose events should have.
    Swept,
    /// The timer loses keys.
    LostKeys,
    /// Many adopted tasks are cancelled at once.
    Withdrawn,
    /// No sentinel expires, or its event is not heard.
    Sentinel,
    /// Another daemon has ended without saying so.
    Daemon,
    /// Events do not arrive.
    Subscription,
    /// The ledger does not answer.
    Ledger,
    /// The table grows: retention is behind.
    Retention,
}

/// What a daemon knows at one time.
#[derive(Debug, Clone, Default)]
pub struct Figures {
    /// What it did in the window.
    pub did: Minute,
    /// Keys that were armed again in the window, since the timer had lost them.
    pub keys_lost: u64,
    /// Adopted tasks that were cancelled in the window, many at once.
    pub withdrawn: u64,
    /// How long the oldest overdue task that is not paused has waited; `None` if another daemon reports it.
    pub overdue: Option<Duration>,
    /// Names of the daemons that have ended in the window without saying so, and whose place no other has taken; empty if
    /// another daemon reports them.
    pub gone: Vec<String>,
    /// False while the timer should hear events and does not.
    pub listens: bool,
    /// Why the ledger cannot be used; `None` while it can.
    pub ledger_trouble: Option<String>,
    pub sentinel_silent: bool,
    pub retention_behind: bool,
}

impl Condition {
    /// Every condition.
    pub const ALL: [Self; 11] = [
        Self::Late,
        Self::Overdue,
        Self::Dead,
        Self::Swept,
        Self::LostKeys,
        Self::Withdrawn,
        Self::Sentinel,
        Self::Daemon,
        Self::Subscription,
        Self::Ledger,
        Self::Retention,
    ];

    /// The name in messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Late => "late",
            Self::Overdue => "overdue",
            Self::Dead => "dead",
            Self::Swept => "swept",
            Self::LostKeys => "lost_keys",
            Self::Withdrawn => "withdrawn",
            Self::Sentinel => "sentinel",
            Self::Daemon => "daemon",
            Self::Subscription => "subscription",
            Self::Ledger => "ledger",
            Self::Retention => "retention",
        }
    }

    /// What to do about it.
    pub fn remedy(self) -> &'static str {
        match self {
            Self::Late => {
                "Check whether all slots are taken (`lapsed_waiting`) and whether the database is slow."
            }
            Self::Overdue => {
                "`lapsed list --state overdue` shows the tasks, and docs/troubleshooting.md why a task does not start."
            }
            Self::Dead => {
                "`lapsed list --state dead` shows their errors. Mend the cause, then `lapsed redrive --error TEXT`, with a part of the error."
            }
            Self::Swept | Self::LostKeys | Self::Sentinel => {
                "`lapsed doctor` checks the notifications and the memory of Redis."
            }
            Self::Withdrawn => {
                "`lapsed list --state cancelled` shows them. If no program has removed their entries or keys, create them again."
            }
            Self::Daemon => {
                "Look at its host and its log, and start it again. Its tasks run again on the other daemons."
            }
            Self::Subscription => {
                "Check that Redis runs and that the daemon reaches it. Meanwhile the sweep starts the tasks."
            }
            Self::Ledger => {
                "Check that the database runs and that the daemon reaches it. Meanwhile no task starts."
            }
            Self::Retention => "Raise `retention.rate`, or keep finished tasks for longer.",
        }
    }

    /// How long the condition must hold before it is reported.
    pub fn patience(self, config: &AlertsConfig) -> Duration {
        match self {
            Self::Daemon | Self::Subscription | Self::Ledger => config.down_for,
            Self::Retention => config.window,
            _ => Duration::ZERO,
        }
    }

    /// False if the figures say nothing about this condition: the ledger does not answer, so its tasks are not counted.
    pub fn is_known(self, figures: &Figures) -> bool {
        match self {
            Self::Overdue | Self::Retention => figures.ledger_trouble.is_none(),
            _ => true,
        }
    }

    /// Says what is wrong, or `None` if this condition does not hold.
    pub fn finding(self, config: &AlertsConfig, figures: &Figures) -> Option<String> {
        let Figures {
            did,
            keys_lost,
            withdrawn,
            overdue,
            gone,
            listens,
            ledger_trouble,
            sentinel_silent,
            retention_behind,
        } = figures;
        let window = spoken(config.window);
        match self {
            Self::Late => {
                let (limit, found) = (config.late?, did.lateness.percentiles()?);
                let p99 = Duration::from_millis(found.p99_ms);
                (p99 > limit).then(|| {
                    let runs = found.count;
                    let (p99, limit) = (spoken(p99), spoken(limit));
                    format!("tasks start late: p99 is {p99} over {runs} runs in the last {window}, expected at most {limit}")
                })
            }
            Self::Overdue => {
                let (limit, waited) = (config.overdue?, (*overdue)?);
                (waited > limit).then(|| {
                    let (waited, limit) = (spoken(waited), spoken(limit));
                    format!("a due task has not been started for {waited}, expected at most {limit}")
                })
            }
            Self::Dead => {
                let is_reported = config.dead > 0 && did.dead >= config.dead;
                is_reported.then(|| format!("tasks died in the last {window}: {}", did.dead))
            }
            Self::Swept => {
                let (swept, total) = (did.started.sweep, did.started.total());
                let is_too_many = swept.saturating_mul(100) > total.saturating_mul(u64::from(config.swept));
                (swept >= SWEPT_MIN && is_too_many).then(|| {
                    format!("{swept} of {total} tasks in the last {window} were started by the sweep alone, up to 2 s late")
                })
            }
            Self::LostKeys => (*keys_lost > 0).then(|| {
                format!("Redis lost the keys of {keys_lost} tasks in the last {window}; they are armed again")
            }),
            Self::Withdrawn => (*withdrawn > 0).then(|| {
                format!("{withdrawn} adopted tasks were cancelled in the last {window}, many at once, because their entries or keys were missing")
            }),
            Self::Sentinel => sentinel_silent.then(|| {
                "no sentinel key was heard for half as long again as one lives: events of Redis are lost".to_owned()
            }),
            Self::Daemon => (!gone.is_empty()).then(|| {
                let names = gone.join(", ");
                format!("a daemon has ended without saying so, and no other has taken its place: {names}")
            }),
            Self::Subscription => {
                (!listens).then(|| "the daemon does not hear the events of Redis".to_owned())
            }
            Self::Ledger => ledger_trouble.clone(),
            Self::Retention => retention_behind.then(|| {
                "retention cannot delete finished tasks as fast as they pass their age: the table grows".to_owned()
            }),
        }
    }
}

/// A duration for people.
fn spoken(span: Duration) -> String {
    match span.as_millis() {
        ms @ ..1_000 => format!("{ms} ms"),
        ms @ ..60_000 => format!("{} s", ms as f64 / 1_000.0),
        ms => format!("{} min", ms / 60_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::telemetry::Metrics;

    fn well() -> Figures {
        Figures {
            overdue: Some(Duration::ZERO),
            listens: true,
            ..Figures::default()
        }
    }

    fn found(settings: &str, figures: &Figures) -> Vec<String> {
        let config = Config::from_toml(&format!("[alerts]\n{settings}")).unwrap();
        let finding = |condition: &Condition| condition.finding(&config.alerts, figures);
        Condition::ALL.iter().filter_map(finding).collect()
    }

    fn did(act: impl Fn(&Metrics)) -> Minute {
        let metrics = Metrics::default();
        act(&metrics);
        metrics.history().end_minute()
    }

    #[test]
    fn a_daemon_at_rest_is_well() {
        assert!(found("", &well()).is_empty());
    }

    #[test]
    fn lateness_is_compared_with_its_limit() {
        let late = |ms| Figures {
            did: did(|metrics| metrics.started("Job", ms)),
            ..well()
        };
        let text =
            "tasks start late: p99 is 1.5 s over 1 runs in the last 5 min, expected at most 1 s";
        assert_eq!(found("", &late(1_500)), [text]);
        assert!(found("", &late(1_000)).is_empty());
        assert!(found("late = 'none'", &late(9_000)).is_empty());
    }

    #[test]
    fn one_dead_task_is_reported_unless_more_are_expected() {
        let two = Figures {
            did: did(|metrics| {
                for _ in 0..2 {
                    metrics.buried("Job", crate::task::Reason::Permanent);
                }
            }),
            ..well()
        };
        assert_eq!(found("", &two), ["tasks died in the last 5 min: 2"]);
        assert_eq!(found("dead = 3", &two), [""; 0]);
        assert_eq!(found("dead = 0", &two), [""; 0]);
    }

    #[test]
    fn the_sweep_may_start_a_share_of_the_tasks() {
        let starts = |nudge, sweep| Figures {
            did: did(|metrics| {
                metrics.starts().nudge.inc_by(nudge);
                metrics.starts().sweep.inc_by(sweep);
            }),
            ..well()
        };
        assert_eq!(found("", &starts(89, 11)).len(), 1);
        assert!(found("", &starts(91, 10)).is_empty(), "ten of a hundred");
        assert!(found("", &starts(0, 9)).is_empty(), "too few to judge");
        assert!(found("swept = 100", &starts(0, 50)).is_empty());
    }

    #[test]
    fn an_overdue_task_is_reported_by_one_daemon() {
        let waited = |overdue| Figures { overdue, ..well() };
        let minutes = |count: u64| Some(Duration::from_secs(count * 60));
        assert_eq!(
            found("", &waited(minutes(2))),
            ["a due task has not been started for 2 min, expected at most 1 min"]
        );
        assert!(found("", &waited(minutes(1))).is_empty());
        assert!(found("", &waited(None)).is_empty());
    }

    #[test]
    fn while_the_ledger_is_down_nothing_is_known_of_its_tasks() {
        let down = Figures {
            ledger_trouble: Some("the ledger does not answer".to_owned()),
            ..well()
        };
        let is_unknown = |condition: &Condition| !condition.is_known(&down);
        let unknown: Vec<Condition> = Condition::ALL.into_iter().filter(is_unknown).collect();
        assert_eq!(unknown, [Condition::Overdue, Condition::Retention]);
        assert!(
            Condition::ALL
                .iter()
                .all(|condition| condition.is_known(&well()))
        );
    }

    #[test]
    fn each_outage_is_reported() {
        let figures = Figures {
            keys_lost: 3,
            withdrawn: 50,
            gone: vec!["worker-2:7".to_owned()],
            listens: false,
            ledger_trouble: Some("could not claim tasks: the ledger does not answer".to_owned()),
            sentinel_silent: true,
            retention_behind: true,
            ..well()
        };
        let found = found("", &figures);
        assert_eq!(found.len(), 7);
        let gone =
            "a daemon has ended without saying so, and no other has taken its place: worker-2:7";
        assert!(found.iter().any(|text| text == gone), "{found:?}");
    }
}
