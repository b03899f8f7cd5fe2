//! The operations that are measured, through the code that the command line, the API, the dashboard and the daemon call.

use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use lapsed::config::TimerKind;
use lapsed::ledger::{
    Claim, Claimant, DueScan, Lease, ListCursor, ListFilter, MethodScan, NearScan, Prune,
    PruneCursor, Pruned, Renewal, Settled, Settlement, StateFilter, Window,
};
use lapsed::task::{Arming, KeyBuckets, State, Verdict};
use lapsed::{Due, Task, TaskKey};
use lapsed_server::http::StatsCache;
use tokio::time::Instant;

use super::load;
use super::rows_read::RowsRead;
use crate::bench::by_size::{Curve, Point, table};
use crate::bench::connection::Connection;
use crate::bench::environment::Environment;
use crate::bench::http::{SERVE_HTTP, pages};
use crate::bench::process::Numbers;
use crate::bench::progress::spinner;
use crate::why;

/// Tasks that are created, claimed and settled together.
const BATCH: u32 = 500;

/// How long these tasks have been overdue when they are created.
const OVERDUE: Duration = Duration::from_secs(10);

/// Pages of the daemon: of the sweep, of the audit, of the look-ahead.
const SWEEP_PAGE: u32 = 1_000;
const AUDIT_PAGE: u32 = 250;
const LOOK_AHEAD_PAGE: u32 = 10_000;

/// How long a task has been overdue before a sweep looks at it.
const GRACE: Duration = Duration::from_millis(500);

/// Classes and methods of one pass of the sweep, and rows of each.
const METHODS: usize = 512;
const METHOD_ROWS: u32 = 32;

/// A month, and days within it.
const MONTH: Duration = Duration::from_secs(30 * 24 * 3600);
const DAYS: Duration = Duration::from_secs(2 * 24 * 3600);

const LIST_LIMIT: u32 = 100;

/// Pages of the dashboard.
const PAGES: [&str; 17] = [
    "/",
    "/upcoming",
    "/tasks",
    "/tasks?state=pending",
    "/tasks?state=running",
    "/tasks?state=done",
    "/tasks?state=dead",
    "/tasks?class=Order",
    "/tasks?prefix=Auction%40end%401",
    "/dead",
    "/recurring",
    "/pauses",
    "/queues",
    "/daemons",
    "/doctor",
    "/audit",
    "/schedule",
];

/// The measured operations of one table, by its size.
pub struct Operations<'a> {
    environment: &'a Environment,
    rows_read: RowsRead,
    /// Calls of each operation.
    calls: u32,
    /// Rows in the table.
    rows: u64,
    curves: Vec<Curve>,
    failures: Vec<String>,
    /// Number of the next task that is created.
    next: u32,
}

impl<'a> Operations<'a> {
    pub async fn new(environment: &'a Environment, calls: u32) -> anyhow::Result<Self> {
        let sql = environment.store().sql().await?;
        let sql = sql.context("this scenario needs a database server")?;
        Ok(Self {
            environment,
            rows_read: RowsRead::new(sql).await?,
            calls,
            rows: 0,
            curves: Vec::new(),
            failures: Vec::new(),
            next: 0,
        })
    }

    /// Returns the costs, and what failed.
    pub fn end(self) -> (Vec<Curve>, Vec<String>) {
        (self.curves, self.failures)
    }

    /// Measures everything on a table with the tasks of the numbers before `numbers`, of which those from `fresh` on were loaded
    /// last. Leaves some hundred tasks that are done, cancelled or gone.
    pub async fn measure(&mut self, fresh: u32, numbers: u32) -> anyhow::Result<()> {
        self.rows = u64::from(numbers);
        let spinner = spinner(format!("measuring with {numbers} rows"));
        self.create().await?;
        self.lists(fresh).await?;
        self.errors().await?;
        self.counts().await?;
        self.single_tasks(fresh, numbers).await?;
        self.scans().await?;
        self.runs().await?;
        self.cancel(fresh, numbers).await?;
        self.retention().await?;
        self.pages(fresh).await?;
        spinner.println(table(&self.curves));
        spinner.finish_and_clear();
        Ok(())
    }

    /// Measures the calls of one operation.
    async fn each(
        &mut self,
        operation: &str,
        mut call: impl AsyncFnMut(u32) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let call = async |number| {
            call(number).await?;
            Ok(false)
        };
        self.each_page(operation, call).await
    }

    /// Measures the calls of an operation that return whether they ended at their limit of time.
    async fn each_page(
        &mut self,
        operation: &str,
        mut call: impl AsyncFnMut(u32) -> anyhow::Result<bool>,
    ) -> anyhow::Result<()> {
        let start = self.rows_read.start().await?;
        let mut calls_ms = Vec::new();
        let mut timed_out = 0;
        for number in 0..self.calls {
            let started = Instant::now();
            let called = call(number).await;
            calls_ms.push(started.elapsed().as_secs_f64() * 1000.0);
            match called {
                Ok(at_limit) => timed_out += u32::from(at_limit),
                Err(error) => {
                    self.fail(operation, &error);
                    break;
                }
            }
        }
        let read = self.rows_read.since(start).await?;
        let point = Point::of(self.rows, calls_ms, Some(read));
        self.add(operation, Point { timed_out, ..point });
        Ok(())
    }

    /// Notes that an operation failed, such as one that took longer than a statement may. The others are measured all the same.
    fn fail(&mut self, operation: &str, error: &anyhow::Error) {
        let rows = self.rows;
        self.failures
            .push(format!("`{operation}` with {rows} rows: {error:#}"));
    }

    /// Adds what an operation cost at the current size.
    fn add(&mut self, operation: &str, point: Point) {
        let curve = self.curves.iter_mut();
        match curve.into_iter().find(|it| it.operation == operation) {
            Some(curve) => curve.points.push(point),
            None => self.curves.push(Curve {
                operation: operation.to_owned(),
                points: vec![point],
            }),
        }
    }

    /// Creates tasks that are overdue, in batches.
    async fn create(&mut self) -> anyhow::Result<()> {
        let client = &self.environment.client;
        let due = client.now().await?.minus(OVERDUE);
        let first = self.next;
        self.next += self.calls * BATCH;
        self.each("create 500 tasks", async |call| {
            let numbers = (first + call * BATCH..).take(BATCH as usize);
            let tasks: Result<Vec<_>, anyhow::Error> = numbers
                .map(|number| Ok((Task::new("Overdue", "run", [number])?, Due::at(due)?)))
                .collect();
            client.create_many(tasks?).await?;
            Ok(())
        })
        .await
    }

    /// Lists by each filter that has an index: the first page, and pages from there on.
    async fn lists(&mut self, fresh: u32) -> anyhow::Result<()> {
        let state = |state| ListFilter {
            states: vec![state],
            ..ListFilter::default()
        };
        let is = |it| state(StateFilter::Is(it));
        let filters = [
            ("all", ListFilter::default()),
            ("pending", is(State::Pending)),
            ("waiting", is(State::Waiting)),
            ("running", is(State::Running)),
            ("done", is(State::Done)),
            ("dead", is(State::Dead)),
            ("cancelled", is(State::Cancelled)),
            ("overdue", state(StateFilter::Overdue)),
            (
                "done, newest first",
                ListFilter {
                    newest: true,
                    ..is(State::Done)
                },
            ),
            ("a class", ListFilter::class("Order")),
            (
                "a class and method",
                ListFilter::class("Order").method("remind"),
            ),
            ("a prefix", ListFilter::prefix("Auction@end@1")),
            ("a tag", ListFilter::tag(load::tag(fresh))),
            (
                "recurring",
                ListFilter {
                    recurring: true,
                    ..ListFilter::default()
                },
            ),
        ];
        for (name, filter) in filters {
            self.list(name, filter).await?;
        }
        Ok(())
    }

    /// Lists by the latest error, which no index has. Such a search ends after 0.7 s if it has not found a page.
    async fn errors(&mut self) -> anyhow::Result<()> {
        let dead = |error: String| ListFilter {
            states: vec![StateFilter::Is(State::Dead)],
            error: Some(error),
            ..ListFilter::default()
        };
        self.list("dead with an error", dead(load::error(7)))
            .await?;
        let kind = lapsed::task::error_kind(&load::error(7));
        let of_kind = ListFilter {
            error: None,
            error_kind: Some(kind),
            ..dead(String::new())
        };
        self.list("dead of a kind of error", of_kind).await?;
        self.list(
            "dead with an error that none has",
            dead("absent".to_owned()),
        )
        .await
    }

    async fn list(&mut self, name: &str, filter: ListFilter) -> anyhow::Result<()> {
        let ledger = &self.environment.adapters.ledger;
        let filter = ListFilter {
            limit: LIST_LIMIT,
            ..filter
        };
        let mut cursor: Option<ListCursor> = None;
        self.each_page(&format!("list {name}"), async |_| {
            let page = ledger.list(&filter).await?;
            cursor = page.next;
            Ok(page.searched.is_some())
        })
        .await?;
        if cursor.is_none() {
            return Ok(());
        }
        self.each_page(&format!("list {name}, next page"), async |_| {
            let filter = ListFilter {
                cursor: cursor.take(),
                ..filter.clone()
            };
            let page = ledger.list(&filter).await?;
            cursor = page.next;
            Ok(page.searched.is_some())
        })
        .await
    }

    async fn counts(&mut self) -> anyhow::Result<()> {
        let adapters = &self.environment.adapters;
        let client = &self.environment.client;
        self.each("stats of the command line", async |_| {
            adapters.ledger.detailed_stats(Default::default()).await?;
            adapters.ledger.pauses().await?;
            Ok(())
        })
        .await?;
        self.each("counts of the dashboard", async |_| {
            StatsCache::default().count(client).await?;
            Ok(())
        })
        .await?;
        self.each("tasks ahead, of the dashboard", async |_| {
            StatsCache::default().ahead(client).await?;
            Ok(())
        })
        .await?;
        self.each("gauges of the daemon", async |_| {
            adapters.ledger.overdue_for().await?;
            let limits = lapsed::ledger::DetailedStatsLimits::GAUGES;
            adapters.ledger.detailed_stats(limits).await?;
            Ok(())
        })
        .await
    }

    async fn single_tasks(&mut self, fresh: u32, numbers: u32) -> anyhow::Result<()> {
        let Environment {
            adapters, config, ..
        } = self.environment;
        let ledger = &adapters.ledger;
        let step = ((numbers - fresh) / (self.calls + 1)).max(1);
        self.each("show a task", async |call| {
            let found = ledger.find(&load::key(fresh + call * step)).await?;
            ensure!(found.is_some(), "the task is not there");
            Ok(())
        })
        .await?;
        self.each("why a task has not run", async |call| {
            let found = ledger.find(&load::key(fresh + call * step)).await?;
            let found = found.context("the task is not there")?;
            why::judged(config, adapters, &found).await?;
            Ok(())
        })
        .await?;
        self.each("look up 500 keys", async |call| {
            let first = fresh + call * step;
            let keys = (first..numbers).take(BATCH as usize).map(load::key);
            ledger.look_up(&keys.collect::<Vec<TaskKey>>()).await?;
            Ok(())
        })
        .await
    }

    /// Reads the pages that the daemon reads in the background.
    async fn scans(&mut self) -> anyhow::Result<()> {
        let ledger = &self.environment.adapters.ledger;
        let scan = |window, limit| DueScan {
            window,
            after: None,
            limit,
        };
        let overdue = [
            ("sweep, oldest", Window::OverdueOldest(GRACE)),
            ("sweep, newest", Window::OverdueNewest(GRACE)),
        ];
        for (name, window) in overdue {
            self.each(name, async |_| {
                ledger.scan(scan(window, SWEEP_PAGE)).await?;
                Ok(())
            })
            .await?;
        }
        self.each("sweep by class and method", async |_| {
            let methods = MethodScan {
                by: GRACE,
                after: None,
                methods: METHODS,
                limit: METHOD_ROWS,
            };
            ledger.scan_methods(methods).await?;
            Ok(())
        })
        .await?;
        let all = KeyBuckets::all();
        let ahead = scan(Window::Ahead(DAYS), LOOK_AHEAD_PAGE);
        self.each("look-ahead, rows that are known", async |_| {
            ledger.scan_new(ahead, &all, &|_, _| true).await?;
            Ok(())
        })
        .await?;
        self.each("look-ahead, 1,000 new rows", async |_| {
            let ahead = scan(Window::Ahead(DAYS), SWEEP_PAGE);
            ledger.scan_new(ahead, &all, &|_, _| false).await?;
            Ok(())
        })
        .await?;
        self.each("look at what falls due about now", async |_| {
            let near = NearScan {
                back: GRACE,
                ahead: GRACE,
                limit: LOOK_AHEAD_PAGE,
            };
            ledger.scan_near(near, &all, &|_, _| false).await?;
            Ok(())
        })
        .await?;
        let mut after = None;
        self.each("audit, page", async |_| {
            let page = DueScan {
                after,
                ..scan(Window::Ahead(MONTH), AUDIT_PAGE)
            };
            after = ledger.scan(page).await?.next;
            Ok(())
        })
        .await?;
        self.each("rows deleted by other programs", async |_| {
            let deleted = Window::Deleted {
                back: GRACE,
                ahead: MONTH,
            };
            ledger.scan(scan(deleted, SWEEP_PAGE)).await?;
            Ok(())
        })
        .await
    }

    /// Claims the overdue tasks, reads and renews their leases, and settles them.
    async fn runs(&mut self) -> anyhow::Result<()> {
        let ledger = &self.environment.adapters.ledger;
        let by = Claimant {
            daemon: "bench".to_owned(),
            lease: Duration::from_secs(600),
        };
        let mut armings: Vec<Arming> = Vec::new();
        let mut after = None;
        loop {
            let page = DueScan {
                window: Window::OverdueOldest(GRACE),
                after,
                limit: SWEEP_PAGE,
            };
            let page = ledger.scan(page).await?;
            armings.extend(page.rows.iter().map(|row| row.arming));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        let batch = |call: u32| {
            let first = (call * BATCH) as usize;
            first..first + BATCH as usize
        };
        let expected = (self.calls * BATCH) as usize;
        ensure!(
            armings.len() == expected,
            "{} tasks are overdue, expected {expected}",
            armings.len()
        );
        let mut claims: Vec<Claim> = Vec::new();
        self.each("claim 500 tasks", async |call| {
            claims.extend(ledger.claim(&armings[batch(call)], &by).await?);
            Ok(())
        })
        .await?;
        ensure!(claims.len() == expected, "{} are claimed", claims.len());
        self.each("lease scan, page", async |_| {
            ledger.scan_leases(None, GRACE).await?;
            Ok(())
        })
        .await?;
        let leases: Vec<Lease> = claims.iter().map(|claim| claim.lease).collect();
        self.each("renew 500 leases", async |call| {
            let renewed = ledger.renew(&leases[batch(call)], by.lease).await?;
            ensure!(
                renewed.iter().all(|it| *it == Renewal::Held),
                "a lease is lost"
            );
            Ok(())
        })
        .await?;
        self.each("settle 500 runs", async |call| {
            let settlements = leases[batch(call)].iter().map(|lease| Settlement {
                lease: *lease,
                verdict: Verdict::Complete,
            });
            let settled = ledger.settle(&settlements.collect::<Vec<_>>()).await?;
            ensure!(
                settled.iter().all(|it| *it == Settled::Applied),
                "a run was not settled"
            );
            Ok(())
        })
        .await
    }

    /// Cancels what is pending of a tag.
    async fn cancel(&mut self, fresh: u32, numbers: u32) -> anyhow::Result<()> {
        let client = &self.environment.client;
        let tags = (fresh.next_multiple_of(load::TAGGED)..numbers).step_by(load::TAGGED as usize);
        let tags: Vec<String> = tags.map(load::tag).collect();
        self.each("cancel a tag of 1,000 tasks", async |call| {
            let tag = tags.get(call as usize).context("there are too few tags")?;
            let report = client.cancel_where(&ListFilter::tag(tag)).await?;
            ensure!(report.cancelled > 0, "no task of `{tag}` was cancelled");
            Ok(())
        })
        .await
    }

    /// Loads pages of the dashboard, from a daemon that finds due tasks in the table alone: no key is armed. What the daemon
    /// itself reads meanwhile is not told apart, so the rows are not counted.
    async fn pages(&mut self, fresh: u32) -> anyhow::Result<()> {
        let settings = [SERVE_HTTP, ("TIMER", TimerKind::LedgerPoll.as_str())];
        let mut daemon = self
            .environment
            .daemon(Numbers::default(), &settings, false)?;
        daemon.listens().await?;
        let mut connection = Connection::open(daemon.http().await?).await?;
        let tag = load::tag(fresh);
        let task = load::key(fresh).to_string().replace('@', "%40");
        let pages = PAGES.map(str::to_owned).into_iter();
        for page in pages.chain([format!("/tasks?tag={tag}"), format!("/task?key={task}")]) {
            let mut calls_ms = Vec::new();
            for _ in 0..self.calls {
                let loaded = pages::get(&mut connection, &page).await?;
                if loaded.failed_panels > 0 {
                    let error = anyhow!("{} parts could not be read", loaded.failed_panels);
                    self.fail(&page, &error);
                }
                calls_ms.push(loaded.took.as_secs_f64() * 1000.0);
            }
            let path = page.split('=').next().unwrap_or_default();
            let page = match PAGES.contains(&page.as_str()) {
                true => page.as_str(),
                false => path,
            };
            let point = Point::of(self.rows, calls_ms, None);
            self.add(&format!("page {page}"), point);
        }
        daemon.stop().await?;
        Ok(())
    }

    /// Deletes, then archives the oldest tasks that are done.
    async fn retention(&mut self) -> anyhow::Result<()> {
        let ledger = &self.environment.adapters.ledger;
        for (name, archive) in [
            ("delete 500 old tasks", false),
            ("archive 500 old tasks", true),
        ] {
            let mut after: Option<PruneCursor> = None;
            self.each(name, async |_| {
                let prune = Prune {
                    state: State::Done,
                    age: Some(DAYS),
                    surplus: None,
                    after,
                    limit: BATCH,
                    archive,
                    dry_run: false,
                };
                let Pruned { rows, next, .. } = ledger.prune(&prune).await?;
                ensure!(rows == u64::from(BATCH), "{rows} of {BATCH} tasks are old");
                after = next;
                Ok(())
            })
            .await?;
        }
        Ok(())
    }
}
