//! Conditions: everything that may be wrong with an installation, in one list.

use std::cmp::Reverse;
use std::time::Duration;

use super::message::{Message, Value, sentence};
use super::thresholds::{OVERDUE, SENTINEL_INTERVALS, STARTING, SWEPT_MIN, Thresholds};
use super::{Blocked, Facts, LedgerState, Phrase, Severity, WhyCause};

/// Something that may be wrong.
#[derive(Debug)]
pub struct Condition {
    /// The name in messages and in the documentation.
    pub id: &'static str,
    /// How much it matters, unless a case says otherwise.
    pub severity: Severity,
    /// How long it lasts before the webhook of `[alerts]` gets a message; `None`: it gets none.
    pub reported: Option<Patience>,
    /// The alert in `deploy/prometheus/rules.yml`.
    pub rule: Option<&'static str>,
    /// True if a daemon is not ready while it holds.
    pub is_unready: bool,
    /// True if nothing is known of it while the ledger does not answer.
    pub needs_ledger: bool,
    text: Phrase,
    remedy: Phrase,
    /// The cases in which it holds.
    holds: fn(&Facts, &Thresholds) -> Vec<Case>,
}

/// How long a condition lasts before it is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// It is judged over a window already.
    None,
    /// For `alerts.down_for`, which leaves time for a restart.
    DownFor,
    /// For `alerts.window`.
    Window,
}

/// A condition that holds, and what to do.
#[derive(Debug, Clone)]
pub struct Found {
    /// The condition.
    pub condition: &'static Condition,
    /// How much it matters.
    pub severity: Severity,
    /// What is wrong.
    pub text: Message,
    /// What a server or a part of the daemon says about it, as it is.
    pub detail: Option<String>,
    /// What it means, and what to do.
    pub remedy: Vec<Message>,
    /// Why tasks do not start, if it is about overdue tasks of one cause.
    pub cause: Option<WhyCause>,
    /// The `Class@method` of these tasks, if they are of one.
    pub of: Option<String>,
}

impl Found {
    /// What is wrong, in English, without a full stop.
    pub fn summary(&self) -> String {
        match &self.detail {
            Some(detail) => format!("{}: {detail}", self.text),
            None => self.text.to_string(),
        }
    }

    /// What to do, in English sentences.
    pub fn advice(&self) -> String {
        let sentences: Vec<String> = self.remedy.iter().map(Message::sentence).collect();
        sentences.join(" ")
    }

    /// What is wrong and what to do, in English sentences.
    pub fn sentences(&self) -> String {
        format!("{} {}", sentence(&self.summary()), self.advice())
    }
}

/// Returns the conditions that hold, the worst first.
pub fn diagnose(facts: &Facts, thresholds: &Thresholds) -> Vec<Found> {
    let found = CONDITIONS.iter().flat_map(|it| it.found(facts, thresholds));
    let mut found: Vec<Found> = found.collect();
    found.sort_by_key(|found| Reverse(found.severity));
    found
}

/// Judges overdue tasks by how long the oldest has been overdue, and whether they are paused or held.
/// [`Severity::Note`]: they are about to start.
pub fn overdue_severity(
    overdue: Duration,
    is_kept_back: bool,
    thresholds: &Thresholds,
) -> Severity {
    match () {
        () if overdue <= STARTING => Severity::Note,
        () if overdue > thresholds.overdue.unwrap_or(OVERDUE) && !is_kept_back => Severity::Error,
        () => Severity::Warning,
    }
}

impl Condition {
    /// The cases in which it holds.
    pub fn found(&'static self, facts: &Facts, thresholds: &Thresholds) -> Vec<Found> {
        let cases = (self.holds)(facts, thresholds).into_iter();
        let found = cases.map(|case| Found {
            condition: self,
            severity: case.severity.unwrap_or(self.severity),
            text: Message::new(case.text.unwrap_or(self.text), case.values),
            detail: case.detail,
            remedy: match case.remedy.is_empty() {
                true => vec![self.remedy.into()],
                false => case.remedy,
            },
            cause: case.cause,
            of: case.of,
        });
        found.collect()
    }

    /// False if the facts say nothing about it: the ledger does not answer, so its tasks are not counted.
    pub fn is_known(&self, facts: &Facts) -> bool {
        !self.needs_ledger || facts.ledger == LedgerState::Answers
    }

    /// What is wrong, in English, with its places.
    pub fn text(&self) -> &'static str {
        self.text.english()
    }

    /// What to do, in English sentences.
    pub fn remedy(&self) -> &'static str {
        self.remedy.english()
    }
}

/// What differs from case to case.
#[derive(Debug, Default)]
struct Case {
    values: Vec<Value>,
    severity: Option<Severity>,
    text: Option<Phrase>,
    detail: Option<String>,
    remedy: Vec<Message>,
    cause: Option<WhyCause>,
    of: Option<String>,
}

/// One case with these values if it `holds`.
fn when(holds: bool, values: impl Into<Vec<Value>>) -> Vec<Case> {
    let values = values.into();
    let case = || Case {
        values,
        ..Case::default()
    };
    holds.then(case).into_iter().collect()
}

/// What most conditions are like.
const NOTICE: Condition = Condition {
    id: "",
    severity: Severity::Note,
    reported: None,
    rule: None,
    is_unready: false,
    needs_ledger: false,
    text: Phrase::Unknown,
    remedy: Phrase::UnknownDo,
    holds: |_, _| Vec::new(),
};

/// A table of conditions: the name, the severity, what is said, what to do, and when it holds. After `=>`: how long it
/// lasts before it is reported, and the rule for Prometheus. After that: what is true of it.
macro_rules! conditions {
    ($($id:literal $severity:ident [$text:ident, $remedy:ident] $holds:expr
        $(=> $patience:ident $(in $rule:literal)?)? $(, $flag:ident)*;)+) => {
        /// Everything that may be wrong.
        pub static CONDITIONS: &[Condition] = &[$(Condition {
            id: $id,
            severity: Severity::$severity,
            $(reported: Some(Patience::$patience), $(rule: Some($rule),)?)?
            $($flag: true,)*
            text: Phrase::$text,
            remedy: Phrase::$remedy,
            holds: $holds,
            ..NOTICE
        }),+];
    };
}

conditions! {
    "ledger" Error [LedgerFails, LedgerDo] ledger => DownFor in "LapsedLedgerDown", is_unready;
    "all_paused" Error [AllPaused, AllPausedDo] |facts, _| when(facts.all_paused, []);
    "overdue" Error [Overdue, OverdueDo] overdue => None in "LapsedOverdue", needs_ledger;
    "clock" Warning [ClockAhead, ClockAheadDo] clock;
    "late" Warning [Late, LateDo] late => None in "LapsedLate";
    "subscription" Warning [NoEvents, NoEventsDo] subscription => DownFor in "LapsedSubscriptionDown", is_unready;
    "daemon" Warning [DaemonLost, DaemonLostDo] daemon => DownFor in "LapsedDaemonGone";
    "hold" Warning [Hold, HoldDo] |facts, _| when(facts.has_hold, []);
    "background" Warning [BackgroundFails, BackgroundFailsDo] background;
    "malformed" Warning [Malformed, MalformedDo] |facts, _| counted(facts.counts.map_or(0, |it| it.malformed));
    "swept" Warning [Swept, RedisDo] swept => None in "LapsedSweepRecovers";
    "lost_keys" Warning [KeysLost, RedisDo] |facts, _| lately(facts.keys_lost, facts) => None in "LapsedKeysLost";
    "withdrawn" Warning [CancelledByKey, CancelledByKeyDo] |facts, _| lately(facts.cancelled_by_key, facts) => None;
    "sentinel" Warning [SentinelSilent, RedisDo] sentinel => None in "LapsedSentinelSilent";
    "retention" Warning [RetentionBehind, RetentionBehindDo] |facts, _| when(facts.retention_behind, [])
        => Window in "LapsedRetentionBehind", needs_ledger;
    "dead" Warning [Died, DiedDo] died => None in "LapsedTasksDie";
    "stopping" Note [Stopping, StoppingDo] |facts, _| when(facts.is_stopping, []), is_unready;
    "pauses" Note [Pauses, PausesDo] |facts, _| counted(if facts.all_paused { 0 } else { facts.pauses });
    "dead_tasks" Note [Dead, DeadDo] |facts, _| counted(facts.counts.map_or(0, |it| it.dead));
}

/// Something is there that should not be.
fn counted(count: u64) -> Vec<Case> {
    when(count > 0, [Value::Count(count)])
}

/// Something happened in the window that should not have.
fn lately(count: u64, facts: &Facts) -> Vec<Case> {
    when(count > 0, [Value::Count(count), Value::Span(facts.window)])
}

fn died(facts: &Facts, thresholds: &Thresholds) -> Vec<Case> {
    let is_pattern = thresholds.dead > 0 && facts.died >= thresholds.dead;
    let values = [Value::Span(facts.window), Value::Count(facts.died)];
    when(is_pattern, values)
}

fn clock(facts: &Facts, _: &Thresholds) -> Vec<Case> {
    let Some(step) = facts.clock_step else {
        return Vec::new();
    };
    let mut cases = when(true, [step.by, step.ago].map(Value::Span));
    if let (false, Some(case)) = (step.is_ahead, cases.first_mut()) {
        case.text = Some(Phrase::ClockBack);
        case.remedy = vec![Phrase::ClockBackDo.into()];
    }
    cases
}

fn daemon(facts: &Facts, _: &Thresholds) -> Vec<Case> {
    let names = facts.lost_daemons.join(", ");
    when(!names.is_empty(), [Value::Text(names)])
}

fn ledger(facts: &Facts, _: &Thresholds) -> Vec<Case> {
    vec![match &facts.ledger {
        LedgerState::Answers => return Vec::new(),
        LedgerState::Unread => Case {
            text: Some(Phrase::LedgerUnread),
            ..Case::default()
        },
        LedgerState::Fails { why, since } => Case {
            text: since.map(|_| Phrase::LedgerFailsSince),
            values: since.map(Value::Time).into_iter().collect(),
            detail: Some(why.clone()),
            ..Case::default()
        },
    }]
}

fn subscription(facts: &Facts, _: &Thresholds) -> Vec<Case> {
    let mut cases = when(facts.is_listening == Some(false), []);
    if let (true, Some(case)) = (facts.hears_keys, cases.first_mut()) {
        case.remedy = vec![Phrase::NoEventsAdoptDo.into()];
    }
    cases
}

fn background(facts: &Facts, _: &Thresholds) -> Vec<Case> {
    let failing = facts.failing.iter().map(|(name, error)| Case {
        values: vec![Value::Text((*name).to_owned())],
        detail: Some(error.clone()),
        ..Case::default()
    });
    failing.collect()
}

fn swept(facts: &Facts, thresholds: &Thresholds) -> Vec<Case> {
    let (swept, total) = (facts.started.sweep, facts.started.total());
    let allowed = total.saturating_mul(u64::from(thresholds.swept));
    let is_pattern = swept >= SWEPT_MIN && swept.saturating_mul(100) > allowed;
    let counts = [swept, total].map(Value::Count);
    let window = [Value::Span(facts.window)];
    when(
        is_pattern,
        counts.into_iter().chain(window).collect::<Vec<_>>(),
    )
}

fn sentinel(facts: &Facts, _: &Thresholds) -> Vec<Case> {
    let (age, interval) = facts.sentinel.unwrap_or_default();
    let is_missed = age > interval.mul_f64(SENTINEL_INTERVALS) && !interval.is_zero();
    when(is_missed, [age, interval].map(Value::Span))
}

fn severity_of(blocked: &Blocked, thresholds: &Thresholds) -> Severity {
    let overdue = Duration::from_millis(blocked.ms_max);
    overdue_severity(overdue, blocked.cause.is_kept_back(), thresholds)
}

/// A case for each cause that is known, else one for the oldest task.
fn overdue(facts: &Facts, thresholds: &Thresholds) -> Vec<Case> {
    let blocked = facts.blocked.iter();
    let blocked = blocked.filter_map(|it| blocked_case(it, facts, thresholds));
    let over = |waited: &Duration| thresholds.overdue.is_some_and(|limit| *waited > limit);
    let oldest = facts.overdue.filter(over).map(|waited| Case {
        values: vec![Value::Span(waited)],
        ..Case::default()
    });
    blocked.chain(oldest).collect()
}

/// `None` for tasks that are about to start.
fn blocked_case(blocked: &Blocked, facts: &Facts, thresholds: &Thresholds) -> Option<Case> {
    let severity = severity_of(blocked, thresholds);
    if severity == Severity::Note {
        return None;
    }
    // What the counts by class have not reached is among the last of them.
    let counted: u64 = facts.blocked.iter().map(|it| it.tasks).sum();
    let total = facts.counts.map(|counts| counts.overdue);
    let (tasks, which) = match total.filter(|total| *total > counted) {
        Some(total) if facts.blocked.len() == 1 && !blocked.is_of_several => {
            (Value::Count(total), Phrase::OverdueFirst)
        }
        Some(_) if blocked.is_of_several => (Value::AtLeast(blocked.tasks), Phrase::OverdueMostly),
        Some(_) => (Value::AtLeast(blocked.tasks), Phrase::OverdueOnly),
        None if blocked.is_of_several => (Value::Count(blocked.tasks), Phrase::OverdueMostly),
        None => (Value::Count(blocked.tasks), Phrase::OverdueOnly),
    };
    let name = Message::new(which, [Value::Text(blocked.name.clone())]);
    let cause = &blocked.cause;
    let remedy = std::iter::once(name)
        .chain(cause.says())
        .chain(cause.advice().map(Message::from));
    Some(Case {
        severity: Some(severity),
        text: Some(Phrase::OverdueTasks),
        values: vec![
            tasks,
            Value::Span(Duration::from_secs(blocked.ms_max / 1_000)),
        ],
        remedy: remedy.collect(),
        cause: Some(cause.clone()),
        of: (!blocked.is_of_several).then(|| blocked.name.clone()),
        ..Case::default()
    })
}

/// Tasks that start late, unless it is known which do not start at all.
fn late(facts: &Facts, thresholds: &Thresholds) -> Vec<Case> {
    let (Some(limit), Some((late, window))) = (thresholds.late, facts.late) else {
        return Vec::new();
    };
    let p99 = Duration::from_millis(late.p99_ms);
    let is_blocked = |it: &Blocked| severity_of(it, thresholds) == Severity::Error;
    let is_known = facts.blocked.iter().any(is_blocked);
    let runs = Value::Count(late.count);
    let values = [
        Value::Span(p99),
        runs,
        Value::Span(window),
        Value::Span(limit),
    ];
    when(p99 > limit && !is_known, values)
}
