//! Backlog check: overdue tasks that wait for a daemon, or for a worker of a pull queue.

use std::collections::BTreeMap;
use std::time::Duration;

use sqlx::mysql::MySqlArguments;
use sqlx::query::Query;
use sqlx::{MySql, MySqlConnection, Row};

use super::{clock, statement};
use lapsed::diagnosis::{
    Finding, Message, OVERDUE, Phrase, Severity, Thresholds, Value, overdue_severity,
};
use lapsed::handler::Router;
use lapsed::ledger::mysql::decode_pause;
use lapsed::ledger::mysql::queries::{PAUSES, Queries, SCAN_OVERDUE_OLDEST};
use lapsed::task::{Pause, Paused, TaskKey, UnixMs};
use lapsed_core::format::{count, duration};

pub(crate) const BACKLOG: &str = "ledger.backlog";

/// Maximum number of overdue rows that are counted.
pub(crate) const BACKLOG_MAX: u32 = 10_000;

/// Maximum number of malformed keys that are named.
const MALFORMED_NAMED: usize = 3;

/// Overdue tasks, by what they wait for.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    /// Tasks that a daemon runs.
    with_route: usize,
    /// Tasks that workers take, by their queue.
    pulled: BTreeMap<String, usize>,
    without_route: usize,
    /// Tasks that are paused or held, and how long the oldest one is overdue.
    kept_back: usize,
    kept_back_for: Duration,
    /// Rows whose key is malformed.
    malformed: Vec<String>,
    /// True if there are more than were counted.
    more: bool,
    /// How long the oldest one is overdue that is neither paused nor held.
    oldest: Duration,
}

/// An overdue task.
pub(crate) struct Overdue {
    pub key: TaskKey,
    /// `end_time`, by which it may be held.
    pub due: UnixMs,
    pub waited: Duration,
}

impl Backlog {
    pub(super) async fn read(
        conn: &mut MySqlConnection,
        queries: &Queries,
        router: &Router,
    ) -> sqlx::Result<Self> {
        let now = clock(conn).await?;
        let question = scan(queries.plain(SCAN_OVERDUE_OLDEST), BACKLOG_MAX + 1);
        let mut rows = question.fetch_all(&mut *conn).await?;
        let more = rows.len() > BACKLOG_MAX as usize;
        rows.truncate(BACKLOG_MAX as usize);
        // A table that was migrated by an older version has no pauses.
        let pauses = statement(queries.plain(PAUSES)).fetch_all(conn).await;
        let pauses = pauses.unwrap_or_default();
        let pauses = pauses
            .iter()
            .filter_map(|row| decode_pause(row).transpose());
        let paused = Paused::of(&pauses.collect::<sqlx::Result<Vec<Pause>>>()?);
        let mut backlog = Self {
            more,
            ..Self::default()
        };
        for row in &rows {
            let key: String = row.try_get_unchecked("key")?;
            let waited = now.since(UnixMs(row.try_get("due_ms")?));
            let due = UnixMs(row.try_get("end_ms")?);
            match TaskKey::parse(&key) {
                Ok(key) => backlog.count(&Overdue { key, due, waited }, router, &paused),
                Err(_) => {
                    backlog.oldest = backlog.oldest.max(waited);
                    backlog.malformed.push(key);
                }
            }
        }
        Ok(backlog)
    }

    /// The backlog of these overdue tasks.
    pub(crate) fn of(tasks: &[Overdue], router: &Router, paused: &Paused) -> Self {
        let most = BACKLOG_MAX as usize;
        let mut backlog = Self {
            more: tasks.len() > most,
            ..Self::default()
        };
        for task in tasks.iter().take(most) {
            backlog.count(task, router, paused);
        }
        backlog
    }

    fn count(&mut self, task: &Overdue, router: &Router, paused: &Paused) {
        let Overdue { key, due, waited } = task;
        if paused.blocks(key, *due).is_some() {
            self.kept_back += 1;
            self.kept_back_for = self.kept_back_for.max(*waited);
            return;
        }
        self.oldest = self.oldest.max(*waited);
        match router.find(key) {
            Some(route) => match route.pull {
                Some(pull) => *self.pulled.entry(pull.queue.to_string()).or_default() += 1,
                None => self.with_route += 1,
            },
            None => self.without_route += 1,
        }
    }

    pub(crate) fn judge(&self, thresholds: &Thresholds) -> Finding {
        let Self {
            with_route,
            pulled,
            without_route,
            kept_back,
            kept_back_for,
            malformed,
            more,
            oldest,
        } = self;
        let of_workers: usize = pulled.values().sum();
        let all = with_route + of_workers + without_route + kept_back + malformed.len();
        if all == 0 {
            return Finding::ok(BACKLOG, "nothing is overdue");
        }
        let all = match more {
            true => format!("more than {}", count(u64::from(BACKLOG_MAX))),
            false => count(all as u64),
        };
        let are = if all == "1" { "task is" } else { "tasks are" };
        let (have, run) = if *with_route == 1 {
            ("has", "runs")
        } else {
            ("have", "run")
        };
        let (they_have, stay) = if *without_route == 1 {
            ("has", "stays")
        } else {
            ("have", "stay")
        };
        let of_those = if *more { "of the oldest of them, " } else { "" };
        let found = format!(
            "{all} {are} overdue, the oldest for {}: {of_those}{} {have} a route here and {run} as soon as a daemon has a free slot, {} {they_have} none and {stay}",
            duration(*oldest.max(kept_back_for)),
            count(*with_route as u64),
            count(*without_route as u64),
        );
        let queues: Vec<String> = pulled
            .iter()
            .map(|(queue, tasks)| format!("{} for the queue `{queue}`", count(*tasks as u64)))
            .collect();
        let found = match of_workers {
            0 => found,
            1 => format!(
                "{found}; 1 waits until a worker asks for it: {}",
                queues.join(", ")
            ),
            tasks => format!(
                "{found}; {} wait until a worker asks for them: {}",
                count(tasks as u64),
                queues.join(", ")
            ),
        };
        let found = match kept_back {
            0 => found,
            1 => format!("{found}; 1 is paused or held"),
            tasks => format!("{found}; {} are paused or held", count(*tasks as u64)),
        };
        // As the overview of the dashboard judges.
        let severity =
            |overdue: &Duration, is_kept_back| overdue_severity(*overdue, is_kept_back, thresholds);
        let severity = severity(oldest, false).max(severity(kept_back_for, true));
        if of_workers > 0 && *oldest > OVERDUE && malformed.is_empty() {
            let names: Vec<&str> = pulled.keys().map(String::as_str).collect();
            // The sentence of the dashboard, which knows whether it is so.
            let said = Message::new(Phrase::NoWorkerOf, [Value::Text(names.join("`, `"))]);
            return Finding::new(BACKLOG, severity, found).remedy(format!(
                "if {said}: {} No daemon runs these tasks itself",
                Phrase::NoWorkerDo.english()
            ));
        }
        let finding = match malformed.len() {
            0 => Finding::new(BACKLOG, severity, found),
            rows => {
                let named = malformed.iter().take(MALFORMED_NAMED);
                let named: Vec<String> = named
                    .map(|key| format!("`{}`", key.escape_debug()))
                    .collect();
                let and_more = if rows > named.len() { " and more" } else { "" };
                let found = format!(
                    "{found}; {} of them never run because their key is malformed: {}{and_more}",
                    count(rows as u64),
                    named.join(", ")
                );
                Finding::new(BACKLOG, severity.max(Severity::Warning), found)
            }
        };
        match (with_route, malformed.len()) {
            (0, 0) if *without_route > 0 => finding.remedy(
                "add a route for them and reload the daemons, or `lapsed cancel` them: `lapsed list --state overdue` shows them",
            ),
            (0, 0) if *kept_back > 0 => {
                finding.remedy("`lapsed resume` them when it is time: `lapsed pauses` lists what is paused")
            }
            (0, 0) => finding.remedy("start their workers if they do not ask"),
            (0, _) => finding.remedy("`lapsed list --state overdue` shows the rows with a malformed key, `lapsed cancel --prefix` cancels them"),
            _ => finding.remedy("check `lapsed list --state overdue`, and `lapsed cancel` tasks that must not run any more (with no daemon running, or after `lapsed pause --all`)"),
        }
    }
}

/// Counts with the scan of the sweep, from its start.
pub(super) fn scan(sql: String, limit: u32) -> Query<'static, MySql, MySqlArguments> {
    statement(sql)
        // No minimum age, no cursor.
        .bind(0i64)
        .bind(0i64)
        .bind(0u64)
        .bind(0i64)
        .bind(limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backlog_of_a_pull_queue_waits_for_its_workers() {
        let routes = "[[routes]]\nmatch = '^Mail@'\npull = { queue = 'mail' }\n\
                      [[routes]]\nmatch = '^Order@'\nlog = {}\n";
        let config = lapsed::Config::from_toml(routes).unwrap();
        let router = Router::new(lapsed::Handlers::new(), &config);
        let keys = ["Mail@send@1", "Mail@send@2", "Order@close@1", "Other@m"];
        let of = |secs, paused: &Paused| {
            let tasks = keys.map(|key| Overdue {
                key: TaskKey::parse(key).unwrap(),
                due: UnixMs(0),
                waited: Duration::from_secs(secs),
            });
            Backlog::of(&tasks, &router, paused).judge(&Thresholds::default())
        };
        let judged = of(61, &Paused::default());
        assert_eq!(judged.severity, Severity::Error, "as the overview says");
        assert_eq!(
            judged.found,
            "4 tasks are overdue, the oldest for 1 min 1 s: 1 has a route here and runs as soon as a daemon has a free slot, 1 has none and stays; 2 wait until a worker asks for them: 2 for the queue `mail`"
        );
        assert!(
            judged
                .remedy
                .unwrap()
                .contains("no worker asks any daemon for the queue `mail`")
        );
        // Workers that are busy, or about to ask.
        assert_eq!(of(5, &Paused::default()).severity, Severity::Warning);
        assert_eq!(of(3, &Paused::default()).severity, Severity::Note);
        let pause = Pause {
            kind: lapsed::task::PauseKind::Pause,
            scope: lapsed::task::Scope::EVERYTHING,
            since: UnixMs(0),
            due_before: None,
            until: None,
            by: String::new(),
            reason: String::new(),
        };
        let paused = of(9_000, &Paused::of(&[pause]));
        assert_eq!(paused.severity, Severity::Warning, "{paused:?}");
        assert!(
            paused.found.ends_with("; 4 are paused or held"),
            "{paused:?}"
        );
        assert!(paused.remedy.unwrap().contains("lapsed resume"));
    }

    #[test]
    fn a_backlog_counts_tasks_with_and_without_a_route() {
        let backlog = Backlog {
            with_route: 9,
            without_route: 3,
            oldest: Duration::from_secs(7200),
            ..Backlog::default()
        };
        let judged = backlog.judge(&Thresholds::default());
        assert_eq!(
            judged.found,
            "12 tasks are overdue, the oldest for 2 h: 9 have a route here and run as soon as a daemon has a free slot, 3 have none and stay"
        );
        assert!(judged.remedy.is_some());
        let malformed = Backlog {
            with_route: 0,
            without_route: 0,
            malformed: ["a", "b\n", "c", "d"].map(str::to_owned).to_vec(),
            ..backlog
        };
        assert_eq!(
            malformed.judge(&Thresholds::default()).found,
            "4 tasks are overdue, the oldest for 2 h: 0 have a route here and run as soon as a daemon has a free slot, 0 have none and stay; 4 of them never run because their key is malformed: `a`, `b\\n`, `c` and more"
        );
        let one = Backlog {
            with_route: 1,
            malformed: Vec::new(),
            ..malformed
        };
        assert_eq!(
            one.judge(&Thresholds::default()).found,
            "1 task is overdue, the oldest for 2 h: 1 has a route here and runs as soon as a daemon has a free slot, 0 have none and stay"
        );
    }
}
