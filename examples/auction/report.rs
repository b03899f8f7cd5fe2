//! The report: counts the effects that the transactions of the handlers left in the database.

use std::collections::{BTreeSet, HashMap};
use std::fmt;

use comfy_table::{Cell, CellAlignment, Table, presets};
use lapsed::task::UnixMs;

use crate::house::{AUCTIONS, CLASS, MAIL_TAKES, Opened};

/// The time without a daemon, by the clock of the database.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outage {
    pub(crate) from: UnixMs,
    pub(crate) until: UnixMs,
}

/// A line of `tb_effects`.
pub(crate) struct Effect {
    pub(crate) key: String,
    pub(crate) attempt: u16,
    pub(crate) due_ms: i64,
    pub(crate) at_ms: i64,
}

/// What there is to count.
pub(crate) struct Evidence {
    pub(crate) opened: Vec<Opened>,
    pub(crate) outages: Vec<Outage>,
    /// Auctions whose payment deadline was cancelled, and acknowledged to be.
    pub(crate) cancelled: BTreeSet<u64>,
    /// What the transactions of the handlers left in the database.
    pub(crate) effects: Vec<Effect>,
    /// To be paid, paid, lapsed.
    pub(crate) orders: [u64; 3],
    /// Current bids that are still shown: of auctions whose end was not announced.
    pub(crate) shown_bids: usize,
    /// Explains `(1)` in the table.
    pub(crate) note: &'static str,
}

/// The method, and its producer.
type Kind = (&'static str, &'static str);

/// A task that was scheduled.
struct Scheduled {
    kind: Kind,
    key: String,
    /// As the producer knows it; that of a follow-up task is read from its effect.
    due: Option<UnixMs>,
    cancelled: bool,
}

/// The results of the tasks of one kind.
#[derive(Default)]
struct Line {
    scheduled: usize,
    ran: usize,
    cancelled: usize,
    lost: usize,
    twice: usize,
    early: usize,
    though_cancelled: usize,
    /// Milliseconds from due to effect, of the tasks outside the outage.
    undisturbed: Vec<i64>,
    all: Vec<i64>,
}

pub(crate) struct Report {
    lines: Vec<(Kind, Line)>,
    again: usize,
    stray: usize,
    orders: [u64; 3],
    shown_bids: usize,
    note: &'static str,
}

impl Report {
    pub(crate) fn of(evidence: Evidence) -> Self {
        let mut by_key: HashMap<String, Vec<Effect>> = HashMap::new();
        for effect in evidence.effects {
            by_key.entry(effect.key.clone()).or_default().push(effect);
        }
        let again = by_key
            .values()
            .flatten()
            .filter(|effect| effect.attempt > 1)
            .count();
        let mut lines: Vec<(Kind, Line)> = Vec::new();
        for task in scheduled(evidence.opened, &evidence.cancelled) {
            let effects = by_key.remove(&task.key).unwrap_or_default();
            if lines.last().is_none_or(|(kind, _)| *kind != task.kind) {
                lines.push((task.kind, Line::default()));
            }
            let (_, line) = lines.last_mut().expect("there is one now");
            line.count(&task, &effects, &evidence.outages);
        }
        Self {
            lines,
            again,
            stray: by_key.len(),
            orders: evidence.orders,
            shown_bids: evidence.shown_bids,
            note: evidence.note,
        }
    }

    /// True if no task was lost, ran twice, ran early, or ran after its cancellation.
    pub(crate) fn is_clean(&self) -> bool {
        let clean = |line: &Line| line.lost + line.twice + line.early + line.though_cancelled == 0;
        let [unpaid, paid, lapsed] = self.orders;
        let orders_add_up = unpaid == 0 && paid + lapsed == AUCTIONS;
        self.lines.iter().all(|(_, line)| clean(line))
            && self.stray == 0
            && orders_add_up
            && self.shown_bids == 0
    }
}

/// All tasks that are expected: the end of each auction, and two follow-up tasks of each end.
fn scheduled(mut opened: Vec<Opened>, cancelled: &BTreeSet<u64>) -> Vec<Scheduled> {
    let key = |method: &str, id: u64| format!("{CLASS}@{method}@{id}");
    opened.sort_by_key(|auction| auction.producer);
    let ends = opened.iter().map(|auction| Scheduled {
        kind: ("auctionEndCutDown", auction.producer),
        key: key("auctionEndCutDown", auction.id),
        due: Some(auction.due),
        cancelled: false,
    });
    let announcements = opened.iter().map(|auction| Scheduled {
        kind: ("announceEnd", "handler"),
        key: key("announceEnd", auction.id),
        due: None,
        cancelled: false,
    });
    let deadlines = opened.iter().map(|auction| Scheduled {
        kind: ("dealCutDown", "handler"),
        key: key("dealCutDown", auction.id),
        due: None,
        cancelled: cancelled.contains(&auction.id),
    });
    ends.chain(announcements).chain(deadlines).collect()
}

impl Line {
    fn count(&mut self, task: &Scheduled, effects: &[Effect], outages: &[Outage]) {
        self.scheduled += 1;
        self.twice += effects.len().saturating_sub(1);
        match (task.cancelled, effects.first()) {
            (false, None) => self.lost += 1,
            (true, None) => self.cancelled += 1,
            (true, Some(_)) => self.though_cancelled += 1,
            (false, Some(effect)) => {
                self.ran += 1;
                let due_ms = task.due.map_or(effect.due_ms, |due| due.0);
                let late_ms = effect.at_ms - due_ms;
                if late_ms < 0 {
                    self.early += 1;
                }
                self.all.push(late_ms);
                let is_beside =
                    |outage: &Outage| effect.at_ms < outage.from.0 || due_ms > outage.until.0;
                if outages.iter().all(is_beside) {
                    self.undisturbed.push(late_ms);
                }
            }
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new();
        table.load_style(presets::UTF8_BORDERS_ONLY);
        table.set_header([
            "\ntask",
            "made\nby",
            "sche-\nduled",
            "\nran",
            "can-\ncelled",
            "\nlost",
            "\ntwice",
            "\nearly",
            "ms late (2)\np50  p99  max",
            "ms late, all\np50  p99  max",
        ]);
        for ((task, by), line) in &self.lines {
            let counts = [
                line.scheduled,
                line.ran,
                line.cancelled,
                line.lost,
                line.twice,
                line.early,
            ];
            let cells = counts
                .iter()
                .map(ToString::to_string)
                .chain([lateness(&line.undisturbed), lateness(&line.all)]);
            let cells = cells.map(|text| Cell::new(text).set_alignment(CellAlignment::Right));
            table.add_row([Cell::new(task), Cell::new(by)].into_iter().chain(cells));
        }
        let [unpaid, paid, lapsed] = self.orders;
        writeln!(f, "{table}")?;
        let though_cancelled: usize = self
            .lines
            .iter()
            .map(|(_, line)| line.though_cancelled)
            .sum();
        writeln!(f, "(1) {}", self.note)?;
        writeln!(
            f,
            "(2) from due to effect, without the tasks that were due or running while there was no daemon;"
        )?;
        writeln!(
            f,
            "    announceEnd first sends a mail, which takes {} ms",
            MAIL_TAKES.as_millis()
        )?;
        writeln!(f)?;
        writeln!(
            f,
            "took effect in a second attempt, the first being cut off: {}; run though cancelled: {though_cancelled}",
            self.again
        )?;
        writeln!(
            f,
            "orders: {paid} paid, {lapsed} lapsed, {unpaid} left; current bids still shown: {}",
            self.shown_bids
        )?;
        if self.stray > 0 {
            writeln!(f, "effects of tasks that nobody scheduled: {}", self.stray)?;
        }
        match self.is_clean() {
            true => write!(f, "nothing lost, nothing twice, nothing early"),
            false => write!(
                f,
                "FAILED: see the table; this must not happen, please report it with the daemon's log"
            ),
        }
    }
}

fn lateness(late_ms: &[i64]) -> String {
    let mut sorted = late_ms.to_vec();
    sorted.sort_unstable();
    let Some(max) = sorted.last() else {
        return "-".to_owned();
    };
    let quantile = |per_cent: usize| sorted[(sorted.len() * per_cent).div_ceil(100).max(1) - 1];
    format!("{:>3} {:>4} {max:>4}", quantile(50), quantile(99))
}
