//! Backlog check: overdue tasks that wait for a daemon, or for a worker of a pull queue.

use std::collections::BTreeMap;
use std::time::Duration;

use sqlx::mysql::MySqlArguments;
use sqlx::query::Query;
use sqlx::{MySql, MySqlConnection, Row};

use super::{clock, statement};
use crate::doctor::units::{count, span};
use crate::doctor::{Finding, Severity};
use crate::handler::Router;
use crate::ledger::mysql::queries::{Queries, SCAN_OVERDUE_OLDEST};
use crate::task::{TaskKey, UnixMs};

pub(in crate::doctor) const BACKLOG: &str = "ledger.backlog";

/// Maximum number of overdue rows that are counted.
pub(in crate::doctor) const BACKLOG_MAX: u32 = 10_000;

/// Workers that ask have their tasks sooner.
const WORKERS_WITHIN: Duration = Duration::from_secs(60);

/// Maximum number of malformed keys that are named.
const MALFORMED_NAMED: usize = 3;

/// Overdue tasks, by what they wait for.
#[derive(Debug, Default)]
pub(in crate::doctor) struct Backlog {
    /// Tasks that a daemon runs.
    with_route: usize,
    /// Tasks that workers take, by their queue.
    pulled: BTreeMap<String, usize>,
    without_route: usize,
    /// Rows whose key is malformed.
    malformed: Vec<String>,
    /// True if there are more than were counted.
    more: bool,
    /// How long the oldest one is overdue.
    oldest: Duration,
}

impl Backlog {
    pub(super) async fn read(
        conn: &mut MySqlConnection,
        queries: &Queries,
        router: &Router,
    ) -> sqlx::Result<Self> {
        let now = clock(conn).await?;
        let question = scan(queries.plain(SCAN_OVERDUE_OLDEST), BACKLOG_MAX + 1);
        let mut rows = question.fetch_all(conn).await?;
        let more = rows.len() > BACKLOG_MAX as usize;
        rows.truncate(BACKLOG_MAX as usize);
        let oldest = match rows.first() {
            Some(row) => now.since(UnixMs(row.try_get("due_ms")?)),
            None => Duration::ZERO,
        };
        let mut backlog = Self::of(&[], router, oldest);
        backlog.more = more;
        for row in &rows {
            let key: String = row.try_get_unchecked("key")?;
            match TaskKey::parse(&key) {
                Ok(key) => backlog.count(&key, router),
                Err(_) => backlog.malformed.push(key),
            }
        }
        Ok(backlog)
    }

    /// The backlog of these overdue tasks. `oldest`: how long the oldest one is overdue.
    pub(in crate::doctor) fn of(keys: &[TaskKey], router: &Router, oldest: Duration) -> Self {
        let most = BACKLOG_MAX as usize;
        let mut backlog = Self {
            more: keys.len() > most,
            oldest,
            ..Self::default()
        };
        for key in keys.iter().take(most) {
            backlog.count(key, router);
        }
        backlog
    }

    fn count(&mut self, key: &TaskKey, router: &Router) {
        match router.find(key) {
            Some(route) => match route.pull {
                Some(pull) => *self.pulled.entry(pull.queue.to_string()).or_default() += 1,
                None => self.with_route += 1,
            },
            None => self.without_route += 1,
        }
    }

    pub(in crate::doctor) fn judge(&self) -> Finding {
        let Self {
            with_route,
            pulled,
            without_route,
            malformed,
            more,
            oldest,
        } = self;
        let of_workers: usize = pulled.values().sum();
        let all = with_route + of_workers + without_route + malformed.len();
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
        let (lack, stay) = if *without_route == 1 {
            ("has", "stays")
        } else {
            ("have", "stay")
        };
        let of_those = if *more { "of the oldest of them, " } else { "" };
        let found = format!(
            "{all} {are} overdue, the oldest for {}: {of_those}{} {have} a route here and {run} as soon as a daemon has a free slot, unless paused, {} {lack} none and {stay}",
            span(*oldest),
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
        if of_workers > 0 && *oldest >= WORKERS_WITHIN && malformed.is_empty() {
            let names: Vec<String> = pulled.keys().map(|queue| format!("`{queue}`")).collect();
            return Finding::new(BACKLOG, Severity::Warning, found).remedy(format!(
                "if no worker asks for {}, start its workers: no daemon runs these tasks by itself",
                names.join(", ")
            ));
        }
        let finding = match malformed.len() {
            0 => Finding::new(BACKLOG, Severity::Note, found),
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
                Finding::new(BACKLOG, Severity::Warning, found)
            }
        };
        match (with_route, malformed.len()) {
            (0, 0) => finding,
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
        let config = crate::Config::from_toml(routes).unwrap();
        let router = Router::new(crate::Handlers::new(), &config);
        let keys = ["Mail@send@1", "Mail@send@2", "Order@close@1", "Other@m"];
        let keys = keys.map(|key| TaskKey::parse(key).unwrap());
        let judged = Backlog::of(&keys, &router, Duration::from_secs(61)).judge();
        assert_eq!(judged.severity, Severity::Warning);
        assert_eq!(
            judged.found,
            "4 tasks are overdue, the oldest for 1 min 1 s: 1 has a route here and runs as soon as a daemon has a free slot, unless paused, 1 has none and stays; 2 wait until a worker asks for them: 2 for the queue `mail`"
        );
        assert!(judged.remedy.unwrap().contains("no worker asks for `mail`"));
        // Workers that are busy, or about to ask.
        let soon = Backlog::of(&keys, &router, Duration::from_secs(5)).judge();
        assert_eq!(soon.severity, Severity::Note);
    }

    #[test]
    fn a_backlog_counts_tasks_with_and_without_a_route() {
        let backlog = Backlog {
            with_route: 9,
            without_route: 3,
            oldest: Duration::from_secs(7200),
            ..Backlog::default()
        };
        let judged = backlog.judge();
        assert_eq!(
            judged.found,
            "12 tasks are overdue, the oldest for 2 h: 9 have a route here and run as soon as a daemon has a free slot, unless paused, 3 have none and stay"
        );
        assert!(judged.remedy.is_some());
        let malformed = Backlog {
            with_route: 0,
            without_route: 0,
            malformed: ["a", "b\n", "c", "d"].map(str::to_owned).to_vec(),
            ..backlog
        };
        assert_eq!(
            malformed.judge().found,
            "4 tasks are overdue, the oldest for 2 h: 0 have a route here and run as soon as a daemon has a free slot, unless paused, 0 have none and stay; 4 of them never run because their key is malformed: `a`, `b\\n`, `c` and more"
        );
        let one = Backlog {
            with_route: 1,
            malformed: Vec::new(),
            ..malformed
        };
        assert_eq!(
            one.judge().found,
            "1 task is overdue, the oldest for 2 h: 1 has a route here and runs as soon as a daemon has a free slot, unless paused, 0 have none and stay"
        );
    }
}
